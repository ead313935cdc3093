"""Verdicts of Protego 0.4.0, and registrable domains of tldextract.

    pip install protego==0.4.0 tldextract==5.4.0
    robots.py verdicts robots/verdicts.json     the committed golden
    robots.py verdicts OUT.json SEED NUM_FILES  more of its random files
    robots.py domains robots/domains.json

A file has its text, paths, and for each path the set of agents that may not fetch it: bit i is agent i of AGENTS.
Made with Python 3.11.7 (`urllib.parse` reads the URLs) and tldextract's bundled list.
"""

import json
import random
import sys

AGENTS = """AI2Bot Applebot-Extended Bytespider CCBot CCBot/2.0 CCBot/1.0 ClaudeBot
cohere-training-data-crawler Diffbot FacebookBot Meta-ExternalAgent Google-Extended GPTBot PanguBot *""".split()

# Written by hand: a file and its paths.
AWKWARD = [
    ("", ["/x"]),
    ("User-agent: *\nDisallow: /", ["/", "/x", "/robots.txt", "/robots.txt?a", "/robots.txt;a", "/a/robots.txt"]),
    ("User-agent: *\nDissallow: /", ["/x"]),
    ("User-agent: *\rDisallow: /\r", ["/x"]),
    ("User-agent: *\r\n\r\nDisallow: /\r\n", ["/x"]),
    ("User-agent: *\x0bDisallow: /", ["/x"]),
    ("User-agent: *\x00Disallow: /", ["/x"]),
    ("User-agent: *\u2028Disallow: /\x85Allow: /x", ["/x", "/y"]),
    ("User-agent: *\x1cDisallow: /\x1fx", ["/x", "/y"]),
    ("\ufeffUser-agent: *\nDisallow: /", ["/x"]),
    ("\ufeff\nUser-agent: *\nDisallow: /", ["/x"]),
    ("<!DOCTYPE html>\n<html><body>Not found</body></html>\n", ["/x"]),
    ("User-agent: *\nDisallow: /private", ["/x", "/private/x", "/privat", "/Private"]),
    ("User-agent: GPTBot\nDisallow: /", ["/x"]),
    ("User-agent: GPTBot\n\nDisallow: /", ["/x"]),
    ("user-agent:gptbot\ndisallow:/", ["/x"]),
    ("User-agent: *\nDisallow: /\n\nUser-agent: GPTBot\nAllow: /", ["/x"]),
    ("User-agent: *\nDisallow: /\n\nUser-agent: GPTBot\nDisallow:", ["/x"]),
    ("User-agent: *\nDisallow: /\n\nUser-agent: GPTBot", ["/x"]),
    ("User-agent: Googlebot\nDisallow: /", ["/x"]),
    ("User-agent: anthropic-ai\nDisallow: /", ["/x"]),
    ("User-agent: Google\nDisallow: /", ["/x"]),
    ("User-agent: bot\nDisallow: /", ["/x"]),
    ("User-agent: Bot\nDisallow: /\nUser-agent: *\nDisallow: /y", ["/x", "/y"]),
    ("User-agent: CCBot/2.0\nDisallow: /", ["/x"]),
    ("User-agent: CCBot\nDisallow: /", ["/x"]),
    ("User-agent: CCBot/\nDisallow: /", ["/x"]),
    ("User-agent: extended\nDisallow: /", ["/x"]),
    ("User-agent: 2.0\nDisallow: /", ["/x"]),
    ("User-agent: c\nDisallow: /c\nUser-agent: *\nDisallow: /star", ["/c", "/star"]),
    ("User-agent: *\nDisallow: /star\nUser-agent: c\nDisallow: /c", ["/c", "/star"]),
    ("User-agent: GPT*\nDisallow: /", ["/x"]),
    ("User-agent: *bot*\nDisallow: /", ["/x"]),
    ("User-agent: **\nDisallow: /", ["/x"]),
    ("User-agent: * # all\nDisallow: / # everything", ["/x"]),
    ("User-agent: GPTBot CCBot\nDisallow: /", ["/x"]),
    ("User-agent: GPTBot, CCBot\nDisallow: /", ["/x"]),
    ("User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /", ["/x"]),
    ("User-agent: GPTBot\nSitemap: https://a.com/s\nUser-agent: CCBot\nDisallow: /", ["/x"]),
    ("User-agent: GPTBot\nHost: a.com\nUser-agent: CCBot\nDisallow: /", ["/x"]),
    ("User-agent: GPTBot\nCrawl-delay: 10\nUser-agent: CCBot\nDisallow: /", ["/x"]),
    ("User-agent: GPTBot\nNoindex: /y\nUser-agent: CCBot\nDisallow: /", ["/x"]),
    ("User-agent: GPTBot\n: /y\nUser-agent: CCBot\nDisallow: /", ["/x"]),
    ("User-agent: GPTBot\nDisallow: /x\nUser-agent:\nUser-agent: CCBot\nDisallow: /y", ["/x", "/y"]),
    ("User-agent: GPTBot\nDisallow: /x\nUser-agent:\nDisallow: /y", ["/x", "/y"]),
    ("User-agent: GPTBot\nDisallow: /x\nUser-agent: *\nDisallow: /\nUser-agent: GPTBot\nDisallow: /y", ["/x", "/y", "/z"]),
    ("Disallow: /\nUser-agent: *\nDisallow: /y", ["/x", "/y"]),
    ("User-agent *\nDisallow /", ["/x"]),
    ("user-agent *\ndisallow /", ["/x"]),
    ("user-agent  *\ndisallow\t/", ["/x"]),
    ("user agent *\ndisallow /x y", ["/x", "/x%20y", "/x y", "/xy"]),
    ("User agent: *\nDisallow: /", ["/x"]),
    ("Useragent: *\nDisallow : /", ["/x"]),
    ("User-agent: *\nvisit-time 0400 0845\nUser-agent: CCBot\nDisallow: /", ["/x"]),
    ("User-agent *\nDisallow /a:b", ["/a:b", "/a"]),
    ("User-agent: *\nAllow: /x\nDisallow: /x", ["/x"]),
    ("User-agent: *\nDisallow: /x\nAllow: /x", ["/x"]),
    ("User-agent: *\nDisallow: /\nAllow: /pub/", ["/pub/x", "/pub"]),
    ("User-agent: *\nDisallow: /Private", ["/private", "/Private"]),
    ("User-agent: *\nDisallow: /$", ["/", "/x", "/$", "/?a", "/#a"]),
    ("User-agent: *\nDisallow: /a$b", ["/a$b", "/a%24b", "/a"]),
    ("User-agent: *\nDisallow: /*?", ["/x?y=1", "/x", "/x?", "/x%3Fy"]),
    ("User-agent: *\nDisallow: /*.pdf$", ["/x.pdf", "/x.pdf?a", "/x.pdf#a", "/.pdf", "/x.pdf.pdf"]),
    ("User-agent: *\nDisallow: /a%C3%A9", ["/aé", "/a%c3%a9", "/a%C3%A9", "/ae"]),
    ("User-agent: *\nDisallow: /aé", ["/aé", "/a%c3%a9", "/a%E9"]),
    ("User-agent: *\nDisallow: /a%E9", ["/a%E9", "/a%FF", "/a\ufffd"]),
    ("User-agent: *\nDisallow: /%7Ea/%2f", ["/~a//", "/~a/%2F", "/%7ea/%2f"]),
    ("User-agent: *\nDisallow: /a=b", ["/a=b", "/a%3Db", "/a%3db"]),
    ("User-agent: *\nDisallow: /?a=b", ["/?a=b", "/?a%3Db", "/x?a=b"]),
    ("User-agent: *\nDisallow: /a?é", ["/a?é", "/a?%C3%A9"]),
    ("User-agent: *\nDisallow: /a;b", ["/a;b", "/a%3Bb", "/a;", "/a;b/c"]),
    ("User-agent: *\nDisallow: /a;", ["/a;", "/a", "/a;x"]),
    ("User-agent: *\nDisallow: /a?", ["/a?", "/a", "/a?x"]),
    ("User-agent: *\nDisallow: /a?b$", ["/a?b", "/a$?b", "/a?bc"]),
    ("User-agent: *\nDisallow: *", ["/", "/x"]),
    ("User-agent: *\nDisallow: *x*y$", ["/xy", "/axbyy", "/xyz", "/yx"]),
    ("User-agent: *\nDisallow: /a**b", ["/ab", "/axb"]),
    ("User-agent: *\nDisallow: /**a\nAllow: /xa", ["/xa"]),
    ("User-agent: *\nDisallow: /a*b*a*b*c", ["/aabbaabbc", "/ababab", "/abababc"]),
    ("User-agent: *\nDisallow: /a?*$*", ["/a?b", "/a?", "/a?b$c"]),
    ("User-agent: *\nDisallow: /a?*$*c", ["/a?bc", "/a?b$c"]),
    ("User-agent: *\nDisallow: /a?x*$*$?", ["/a?x", "/a??xb", "/a?xb"]),
    ("User-agent: *\nDisallow: $", ["/", "/$"]),
    ("User-agent: *\nDisallow: x", ["/x"]),
    ("User-agent: *\nDisallow: a.com/x", ["/x"]),
    ("User-agent: *\nDisallow: https://a.com/x", ["/x", "/https://a.com/x"]),
    ("User-agent: *\nDisallow: //x", ["/x", "//x", "//x/y"]),
    ("User-agent: *\nDisallow: ftp://a.com/x", ["/x", "/y"]),
    ("User-agent: *\nDisallow: a:/x;y", ["/x;y", "/x", "/x%3By"]),
    ("User-agent: *\nDisallow: /x\ty", ["/xy", "/x%09y"]),
    ("User-agent: *\nDisallow: /\nAllow: /index.html", ["/", "/index.html", "/x", "/$"]),
    ("User-agent: *\nDisallow: /\nAllow: /a/index.html", ["/a/", "/a/index.html", "/a/x", "/a/$"]),
    ("User-agent: *\nDisallow: /\nAllow: /index.html$", ["/", "/index.html", "/x"]),
    ("User-agent: *\nDisallow: /\nAllow: /a?b/index.html", ["/a?b/", "/a?b/index.html", "/a$?b/"]),
    ("User-agent: *\nDisallow: /a/./b", ["/a/./b", "/a/b"]),
    ("User-agent: *\nDisallow: /%", ["/%", "/%25", "/%zz"]),
    ("User-agent: *\nDisallow: /%2A", ["/*", "/%2A", "/a"]),
    ("User-agent: *\nDisallow: /%24$", ["/$", "/%24", "/%24a"]),
    ("User-agent: *\nDisallow: /日本", ["/日本語", "/%E6%97%A5%E6%9C%AC"]),
    ("User-agent: *\nDisallow: /a b", ["/a b", "/a%20b", "/a+b"]),
    ("User-agent: *\nDisallow: /\u00a0", ["/x", "/\u00a0"]),
    ("User-agent: *\nDisallow: /", ["?q=1", "#f", "?", "", "?/x"]),
    ("User-agent: *\nDisallow: *", ["?q=1", "#f", "?", "", "?/x"]),
    ("User-agent: *\nDisallow: ?q\nAllow: /", ["?q=1", "#f", "?", "", "/?q=1"]),
]

LINE_ENDS = ["\n"] * 24 + ["\r\n", "\r\n", "\r", "\n\n", "\n \n", "\x0b", "\x0c", "\x85", "\u2028", "\x1d", "\x00", "\t\n"]
AGENT_NAMES = AGENTS + """bot GPT gptbot google Google ccbot CCBot/2.0 CCBot/3 claude Extended extended meta- -ext Bot/1.0
2 c * * * * *bot* GPTBot* ** a*a ai2 AI2Bot/1.0 Googlebot cohere data crawler Mozilla/5.0 É İ""".split() + ["", "* x", "GPTBot CCBot"]
FIELDS = """User-agent User-agent User-agent User-agent Disallow Disallow Disallow Disallow Disallow Allow Allow Allow
user-agent disallow allow USER-AGENT useragent dissallow dissalow disalow diasllow disallaw Sitemap sitemaps
site-map Host Crawl-delay crawl-delay Request-rate visit-time Visit-time Noindex allowed User-agents Clean-param""".split()
FIELDS += ["user agent", "User agent", "crawl delay", "request rate", "", "\ufeffUser-agent"]
COLONS = [": "] * 12 + [":", ":", " : ", ":\t", " ", " ", "  ", "\t", ":: ", " :", "=", ":\u00a0"]
PIECES = """/ / / / / a a b x x.pdf .pdf index.html /index.html index.htm ? ? ?a=b = & ; ;p * * * ** $ $ %24 %2A %2a %2F
%2f %25 %3D %3d %3F %20 %41 %61 %C3%A9 %c3%a9 %E9 %E6%97 %zz % %4 %; é 日 ~ + , @ ! ' ( ) [ ] : // . .. ./ http:// https:// x: x:// #
_ - A {{ | ^ ` < > \\ \" robots.txt /robots.txt ?* $* *$* ;$ ?$""".split()
ODD_PIECES = [" ", "\t", "\u00a0", "\x01", "\x1c", "\u200b", "\ufffd", "İ", "K"]


def random_path_text(rng, most):
    pieces = [rng.choice(PIECES if rng.random() < 0.97 else ODD_PIECES) for _ in range(rng.randint(0, most))]
    return "".join(pieces)


def random_value(rng, field):
    if "agent" in field.lower():
        return rng.choice(AGENT_NAMES)
    if rng.random() < 0.04:
        return ""
    if rng.random() < 0.12:
        return rng.choice(["/", "*", "/*", "/$", "/a", "/x"])
    return ("/" if rng.random() < 0.93 else "") + random_path_text(rng, 6)


def random_file(rng):
    lines = []
    for _ in range(rng.randint(1, 14)):
        field = rng.choice(FIELDS)
        line = field + rng.choice(COLONS) + random_value(rng, field)
        if rng.random() < 0.05:
            line = rng.choice([" ", "\t", "\u00a0", "x ", ""]) + line + rng.choice(["# x", " #", "  "])
        lines.append(line)
    if rng.random() < 0.8:
        lines.insert(0, "User-agent: " + rng.choice(AGENT_NAMES))
    text = "".join(line + rng.choice(LINE_ENDS) for line in lines)
    return ("\ufeff" if rng.random() < 0.02 else "") + text, lines


def random_path(rng, lines):
    """Often one that a rule of the file could match."""
    if rng.random() < 0.4:
        return "/" + random_path_text(rng, 6)
    text = rng.choice(lines).split(":", 1)[-1].strip()
    text = "".join(random_path_text(rng, 2) if c == "*" else c for c in text)
    if rng.random() < 0.5:
        text = text.rstrip("$")
    if rng.random() < 0.3:
        text += random_path_text(rng, 2)
    return "/" + text.lstrip("/") if rng.random() < 0.95 else "//" + text


def masks(text, paths):
    from protego import Protego

    robots = Protego.parse(text)
    blocked = lambda path: [not robots.can_fetch("https://a.com" + path, agent) for agent in AGENTS]
    return [sum(1 << i for i, is_blocked in enumerate(blocked(path)) if is_blocked) for path in paths]


def verdicts(out, seed=7, num_files=110):
    rng = random.Random(seed)
    files = list(AWKWARD) if seed == 7 else []
    for _ in range(num_files):
        text, lines = random_file(rng)
        files.append((text, sorted({random_path(rng, lines) for _ in range(3)})))
    golden = []
    num_errors = 0
    for text, paths in files:
        try:
            golden.append({"text": text, "paths": paths, "blocked": masks(text, paths)})
        except ValueError as error:
            num_errors += 1
            print(repr(text), error, file=sys.stderr)
    print(len(golden), "files,", sum(len(case["paths"]) for case in golden), "paths,", num_errors, "refused")
    write(out, {"agents": AGENTS, "files": golden})


SUFFIXES = """com org net de co.uk org.uk ac.uk gov.uk com.au co.jp ne.jp tokyo.jp city.kobe.jp kobe.jp c.kobe.jp ck www.ck er
com.br blogspot.com github.io herokuapp.com s3.amazonaws.com compute.amazonaws.com appspot.com cloudfront.net
co.za edu.cn com.cn gov.in k12.ca.us ca.us pvt.k12.ma.us io ai dev museum xn--55qx5d.cn xn--p1ai xn--90ais xn--wgbh1c
com.tr co.kr go.kr com.tw idv.tw wordpress.com netlify.app vercel.app gitlab.io readthedocs.io ngrok.io dyndns.org
uk.com eu.org no.com com.bd np fk mm sch.uk edu.au vic.edu.au info biz mobi asia arpa in-addr.arpa onion test
localhost invalid lan notatld 1.2.3.4 [::1]""".split()


def domains(out):
    import tldextract

    extract = {
        kind: tldextract.TLDExtract(suffix_list_urls=(), include_psl_private_domains=kind == "private")
        for kind in ["icann", "private"]
    }
    hosts = [prefix + suffix for suffix in SUFFIXES for prefix in ["", "example.", "a.b-c.example."]]
    golden = []
    for host in hosts:
        found = {kind: extract[kind](host).top_domain_under_public_suffix or None for kind in extract}
        golden.append({"host": host, **found})
    print(len(golden), "hosts")
    write(out, golden)


def write(out, golden):
    with open(out, "w", encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"), ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    if sys.argv[1] == "domains":
        domains(sys.argv[2])
    else:
        verdicts(sys.argv[2], *map(int, sys.argv[3:]))
