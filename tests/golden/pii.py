"""Expected values of the tests of src/text/pii, from the published formatters, ipaddress and schwifty.

    PYTHONPATH=PRETRAIN_DATA/src python tests/golden/pii.py tests/golden/pii

PRETRAIN_DATA is a checkout of github.com/swiss-ai/pretrain-data (0943bfda). Its formatter reads an
Excel file of patterns that it does not use by default; any with the columns Priority, Regex and
Replacement will do.

Versions used: Python 3.13.0, datatrove 0.10.1, schwifty 2026.10.1.

addresses.json: {"public": [address...], "other": [address...]}; datatrove.json and apertus.json:
[text, result]...; ibans.json: {"valid": [[electronic, printed]...], "invalid": [electronic...]}.
"""

import ipaddress
import json
import pathlib
import random
import sys

import schwifty
from data_pipeline_pretrain.pipeline.formatters import PIIFormatter as Apertus
from datatrove.data import Document
from datatrove.pipeline.formatters import PIIFormatter as Datatrove

COUNTRIES = "AT BE CH CZ DE DK ES FI FR GB GR HU IE IT LI LU MT NL NO PL PT RO SE SI SK TR".split()
# The others of release 101 of the registry, without BR: schwifty draws letters for its bank, where it has digits.
OTHERS = "ADAEALAZBABGBHBIBYCRCYDJDOEEEGFKFOGEGIGLGTHNHRILIQISJOKWKZLBLCLTLVLYMCMDMEMKMNMRMUNIOMPKPS" \
    "QARSRUSASCSDSMSOSTSVTLTNUAVAVGXKYE"
COUNTRIES += [OTHERS[at : at + 2] for at in range(0, len(OTHERS), 2)]

# Parts that texts are made of: addresses, what may stand beside them, and what looks like one.
PARTS = [
    "a@b.co", "aa@b.co", "x.a@b.co", "first.last@example.com", "email@example.com", "a@[1.2.3.4]",
    "a@[1.2.3.x-y:]", "user@münchen.de", "müller@x.de", "邮箱abc@x.cn", "ที่abc@x.th", "หมูabc@x.th", "ⓐabc@x.de",
    "½a@x.de", "'a@b.co'", "+a@b.co", "a..b@c.de", "a@b.c-.d", "a@b.c_d@e.fr", "a@b", "@", ".", "..", "-", "_",
    "1.1.1.1", "21.1.1.10", "8.8.8.8", "10.0.0.1", "256.1.1.1", "1.2.3.4.5", "01.2.3.4", "1.2.3.256", "224.0.0.1",
    "192.0.0.9", "192.88.99.1", "198.18.0.1", "100.64.0.1", "22.214.171.124", "2606:4700::1111",
    "DE89 3704 0044 0532 0130 00", "CH93 0076 2011 6238 5295 7", "ES91 2100 0418 4502 0005 1332",
    "DE00 0000 0000 0000 0000 00", "GB29 NWBK 6016 1331 9268 19", "DE89370400440532013000",
    "é", "中", "x", "7", " ", " ", " ", ", ", "\n",
]


def texts():
    rng = random.Random(4)
    for count in [1, 2, 3, 3, 4, 4, 6]:
        for _ in range(60):
            yield "".join(rng.choice(PARTS) for _ in range(count))
    yield from PARTS


def addresses():
    """The edges of the special ranges, their neighbours, and addresses in and between them."""
    rng = random.Random(4)
    for version, constants in [(4, ipaddress._IPv4Constants), (6, ipaddress._IPv6Constants)]:
        special = constants._private_networks
        if version == 6 and ipaddress.IPv6Network("3fff::/20") not in special:
            special.append(ipaddress.IPv6Network("3fff::/20"))  # RFC 9637, since Python 3.13.1
        networks = special + constants._private_networks_exceptions + [constants._multicast_network]
        if version == 4:
            networks.append(constants._public_network)
        make = [ipaddress.IPv4Address, ipaddress.IPv6Address][version == 6]
        top = 2 ** (32 if version == 4 else 128) - 1
        values = set()
        for network in networks:
            first, last = int(network[0]), int(network[-1])
            values |= {first - 1, first, first + 1, last - 1, last, last + 1}
            values |= {rng.randint(first, last) for _ in range(4)}
            values |= {first ^ 1 << bit for bit in (range(32) if version == 4 else range(0, 128, 2))}
        values |= {rng.randint(0, top) for _ in range(400 if version == 4 else 100)}
        if version == 6:
            values |= {rng.randint(0, 2**32 - 1) | 0xFFFF << 32 for _ in range(100)}
        for value in sorted(values):
            if 0 <= value <= top:
                yield make(value)


def is_valid(value):
    try:
        return bool(schwifty.IBAN(value))
    except schwifty.exceptions.SchwiftyException:
        return False


def with_check_digits(country, account):
    """An IBAN with right check digits, whatever the account."""
    digits = "".join(str(int(c, 36)) for c in account + country + "00")
    return f"{country}{98 - int(digits) % 97:02}{account}"


def ibans():
    rng = random.Random(4)
    valid, invalid = [], []
    for country in COUNTRIES:
        iban = schwifty.IBAN.random(country, random=rng)
        valid.append([str(iban), iban.formatted])
        account = str(iban.bban)
        invalid.append(f"{country}{(int(iban.checksum_digits) + 7) % 97:02}{account}")
        invalid.append(with_check_digits(country, account + "0"))
        invalid.append(with_check_digits(country, account[:-1]))
        invalid.append(with_check_digits(country, account[:-2] + "QQ"))
    invalid = [iban for iban in invalid if not is_valid(iban)]
    assert len(invalid) > 3 * len(COUNTRIES) and all(is_valid(iban) for iban, _ in valid)
    return {"valid": valid, "invalid": invalid}


def main():
    out = pathlib.Path(sys.argv[1])

    def write(name, value):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        (out / f"{name}.json").write_text(text + "\n")

    apertus = Apertus()
    write("apertus", [[text, apertus.format(Document(text, "id"))] for text in texts()])
    write("datatrove", [[text, Datatrove().format(text)] for text in texts()])
    public = {True: [], False: []}
    for ip in addresses():
        alone = getattr(ip, "ipv4_mapped", None) or ip  # is_multicast sees it since Python 3.13.1
        public[ip.is_global and not alone.is_multicast].append(str(ip))
    write("addresses", {"public": public[True], "other": public[False]})
    write("ibans", ibans())


main()
