//! Finds IP addresses: IPv4 around a dot, IPv6 around a colon. The standard library parses both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memchr2_iter;

use super::letters::joins;
use super::options::IpScope;

const MAX_IPV4_BYTES: usize = 15;
/// Maximum bytes of an IPv6 address, with an IPv4 address at its end.
const MAX_IPV6_BYTES: usize = 45;

/// Ranges that are not global in `ipaddress` of Python 3.13.1 and, marked with `+`, global ranges
/// within them; without IPv4-mapped addresses, which are treated as IPv4.
static NETWORKS: LazyLock<Vec<Network>> = LazyLock::new(|| {
    let written =
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24
         192.0.2.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4
         ::/127 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 fc00::/7
         fe80::/10 +192.0.0.9/32 +192.0.0.10/32 +2001:1::1/128 +2001:1::2/128 +2001:3::/32
         +2001:4:112::/48 +2001:20::/28 +2001:30::/28";
    written.split_whitespace().filter_map(parse_network).collect()
});

/// First address of a range, number of bits that its addresses share, and whether they are global.
type Network = (u128, u32, bool);

/// Number of bits before an IPv4 address in the IPv6 address that it is mapped to.
const MAPPED_BITS: u32 = 96;

/// Parses a range that is written as first address and number of shared bits: `192.0.2.0/24`.
fn parse_network(written: &str) -> Option<Network> {
    let range = written.trim_start_matches('+');
    let (first, bits) = range.split_once('/')?;
    let (first, bits) = (first.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?);
    let bits = if first.is_ipv4() { MAPPED_BITS + bits } else { bits };
    Some((bits_of(first), bits, range != written))
}

/// Returns the bits of an IPv6 address, or of an IPv4 address as IPv6 maps it.
fn bits_of(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// Returns true if Python's `ipaddress` calls `ip` global (multicast is); `ip` must be canonical.
pub(super) fn is_global(ip: IpAddr) -> bool {
    let is_in = |(first, bits, _): &&Network| (bits_of(ip) ^ first).leading_zeros() >= *bits;
    let innermost = NETWORKS.iter().filter(is_in).max_by_key(|(_, bits, _)| *bits);
    innermost.is_none_or(|(.., is_global)| *is_global)
}

/// Returns true if `ip` is in `scope`. Public addresses are global, not multicast and, for IPv6, in
/// the allocated eighth (2000::/3): `a::b` is more likely a name in a program.
fn is_in_scope(ip: IpAddr, scope: IpScope) -> bool {
    let ip = ip.to_canonical();
    let is_given_out = match ip {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => ip.segments()[0] >> 13 == 1,
    };
    scope == IpScope::All || is_global(ip) && !ip.is_multicast() && is_given_out
}

/// Finds every address in `scope`; an IPv4 address at the end of an IPv6 address is part of it.
pub(super) fn find_ips(text: &str, scope: IpScope) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut next_colon = 0;
    memchr2_iter(b'.', b':', bytes).filter_map(move |at| {
        let (range, ip) = if bytes[at] == b'.' {
            ipv4_around(text, at)?
        } else if at < next_colon || !bytes.get(at + 1).is_some_and(|&b| is_ipv6_byte(b)) {
            return None;
        } else {
            let before = bytes[..at].iter().rev().take_while(|b| b.is_ascii_hexdigit()).count();
            // What a letter joins is a label, as in `IPv6:2001:db8::1`.
            let before = if text[..at - before].ends_with(joins) { 0 } else { before };
            next_colon = at + bytes[at..].iter().take_while(|b| is_ipv6_byte(**b)).count();
            ipv6_in(text, at - before..next_colon)?
        };
        is_in_scope(ip, scope).then_some(range)
    })
}

/// Returns the IPv4 address whose first dot is at `dot`, unless it is part of something longer.
fn ipv4_around(text: &str, dot: usize) -> Option<(Range<usize>, IpAddr)> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    if !is_digit(dot + 1) {
        return None;
    }
    let start = dot - (0..dot).rev().take(3).take_while(|&at| is_digit(at)).count();
    if start == dot || !may_start(text, start) {
        return None;
    }
    let end = dotted_end(bytes, start);
    let ip: Ipv4Addr = text[start..end].parse().ok()?;
    may_end(text, end).then_some((start..end, ip.into()))
}

/// Returns the end of the digits and single dots from `start`, without a trailing dot. Reads one
/// byte more than the longest address, to see an extra digit.
fn dotted_end(bytes: &[u8], start: usize) -> usize {
    let is_dot = |at: usize| bytes.get(at) == Some(&b'.');
    let dotted = (start..bytes.len()).take(MAX_IPV4_BYTES + 1);
    let is_part = |&at: &usize| bytes[at].is_ascii_digit() || is_dot(at) && !is_dot(at + 1);
    let end = start + dotted.take_while(is_part).count();
    if end > start && is_dot(end - 1) { end - 1 } else { end }
}

/// Returns true if a byte may stand in an IPv6 address, except in its IPv4 part.
fn is_ipv6_byte(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || byte == b':'
}

/// Parses `run`, hexadecimal digits and colons, as an address, without a single colon at an end and
/// with an IPv4 address after it.
fn ipv6_in(text: &str, run: Range<usize>) -> Option<(Range<usize>, IpAddr)> {
    let bytes = text.as_bytes();
    let Range { mut start, mut end } = run;
    let is_colon = |at: usize| bytes.get(at) == Some(&b':');
    if is_colon(start) && !is_colon(start + 1) {
        start += 1;
    }
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        let last = bytes[start..end].iter().rposition(|&b| b == b':')?;
        end = dotted_end(bytes, start + last + 1);
    } else if is_colon(end - 1) && !is_colon(end - 2) {
        end -= 1;
    }
    let address = text.get(start..end)?;
    if address.len() > MAX_IPV6_BYTES || address == "::" {
        return None;
    }
    let ip: Ipv6Addr = address.parse().ok()?;
    let is_whole = may_start(text, start) && may_end(text, end) && !text[end..].starts_with(joins);
    is_whole.then_some((start..end, ip.into()))
}

/// Returns true unless a letter, digit, dot or hyphen precedes `start`.
fn may_start(text: &str, start: usize) -> bool {
    !text[..start].ends_with(|c: char| joins(c) || c == '.' || c == '-')
}

/// Returns true unless a digit, or a dot or hyphen before a digit, is at `end`.
fn may_end(text: &str, end: usize) -> bool {
    match text.as_bytes()[end..] {
        [b'.' | b'-', b, ..] | [b, ..] => !b.is_ascii_digit(),
        [] => true,
    }
}

/// Returns the length of the longest number up to 255, of at most three digits, that `bytes` starts
/// with; leading zeros are digits.
pub(super) fn octet_len(bytes: &[u8]) -> Option<usize> {
    let digits = bytes.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    let value = |n: usize| bytes[..n].iter().fold(0, |value, b| 10 * value + u32::from(b - b'0'));
    (1..=digits).rev().find(|&n| value(n) <= 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_parsed() {
        let global = NETWORKS.iter().filter(|(.., is_global)| *is_global).count();
        assert_eq!((NETWORKS.len() - global, global), (22, 8));
    }
}
