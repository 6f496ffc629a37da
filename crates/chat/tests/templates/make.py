#!/usr/bin/env python3
"""Records expected.json and language.json: what transformers' apply_chat_template makes of the templates here.

Run with transformers 5.24.0 and jinja2 3.1.6. `--time` prints the median time of a render instead.
"""
import json
import statistics
import sys
import time
from pathlib import Path

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOKENIZER = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")), **TOKENS)


def say(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, ident="call00001"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a place.\nIn two lines.",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "City & <country>, e.g. \"Köln\"."},
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "days": {"type": ["integer", "null"], "minimum": 1.0, "maximum": 1e16},
        "where": {"type": "array", "items": {"type": "number"}},
        "extra": {"type": "object", "properties": {"deep": {"type": "array", "items": {"type": "object"}}, "b": {"type": "boolean"}}, "additionalProperties": {"type": "string"}}}},
    "return": {"type": "object"}}}
NOTHING = {"type": "function", "function": {"name": "nothing", "description": "Does 'nothing'.", "parameters": {"type": "object", "properties": {}}}}
TURNS = [say("user", "Hello?"), say("assistant", "Hi."), say("user", "How are you?")]
USED = [say("user", "Weather?"), say("assistant", None, tool_calls=[call("get_weather", {"place": "Köln 🌧", "unit": "C", "n": [1, 2.5, 1e-7, None, True], "m": {"a": {"b": []}, "c": {}}})]), say("tool", "{\"t\": 21.0}", tool_call_id="call00001", name="get_weather")]

CONVERSATIONS = {
    "plain": {"messages": [say("user", "Hello?")]},
    "generation": {"messages": [say("user", "Hello?")], "add_generation_prompt": True},
    "turns": {"messages": TURNS, "add_generation_prompt": True},
    "system": {"messages": [say("system", " Be brief. "), *TURNS], "add_generation_prompt": True},
    "answered": {"messages": [*TURNS, say("assistant", "Fine, <b>thanks</b> & you?\n")]},
    "spaces": {"messages": [say("system", "\n\ta\u00a0\r\nb\n\n\n"), say("user", "  lead\nmiddle  \n trail \x0b\x1f"), say("assistant", " \n ")]},
    "unicode": {"messages": [say("user", "naïve ẞ İ 日本語 👩‍👩‍👧 \u200b e\u0301 \\n \\ \"q\" 'q'")], "add_generation_prompt": True},
    "empty": {"messages": [say("system", ""), say("user", ""), say("assistant", "")]},
    "none": {"messages": [say("user", None), say("assistant", "x")]},
    "without": {"messages": [{"role": "user"}, {"content": "x"}]},
    "wrong_order": {"messages": [say("assistant", "a"), say("assistant", "b")]},
    "unknown_role": {"messages": [say("user", "a"), say("critic", "b")]},
    "tools": {"messages": [say("system", "S"), *TURNS], "tools": [WEATHER, NOTHING], "add_generation_prompt": True},
    "no_tools": {"messages": TURNS, "tools": []},
    "tool_call": {"messages": USED, "tools": [WEATHER], "add_generation_prompt": True},
    "tool_calls": {"messages": [say("user", "Two?"), say("assistant", "I ask.", tool_calls=[call("a", {"x": 1}), call("b", {}, "call00002")]), say("tool", "1", tool_call_id="call00001"), say("tool", "2", tool_call_id="call00002"), say("assistant", "Done.")], "tools": [NOTHING]},
    "text_arguments": {"messages": [say("user", "?"), say("assistant", "", tool_calls=[call("a", "{\"x\": 1}")]), say("tool", {"temperature": -0.0, "list": [1.5]}, tool_call_id="short")]},
    "parts": {"messages": [say("system", [{"type": "text", "text": "S"}]), say("user", [{"type": "text", "text": " one "}, {"type": "image"}, {"type": "text", "text": "two"}])], "add_generation_prompt": True},
    "reasoning": {"messages": [say("user", "1+1"), say("assistant", "<think>\nold\n</think>\n\n2"), say("user", "+1"), say("assistant", "3", reasoning_content="\nmore\n"), say("tool", "x"), say("assistant", "4", thinking="t", reasoning=None)]},
    "variables": {"messages": [say("user", "q /no_think")], "variables": {"enable_thinking": False, "bos_token": "<B>", "documents": [{"title": "", "text": "T1"}, {"title": "b", "text": "T2"}], "controls": {"length": "short"}, "builtin_tools": ["code_interpreter", "search"], "date_string": "1 Jan 2000"}, "add_generation_prompt": True},
    "long": {"messages": [say("user" if i % 2 == 0 else "assistant", f"message {i}") for i in range(9)]},
}

# Expressions of the language, with these values in their reach.
VALUES = {"s": "Hello, World", "u": "äöü ẞ\u00a0", "e": "", "n": None, "t": True, "f": False, "i": 7, "neg": -3, "x": 0.1, "big": 1e22, "tiny": 1.5e-7, "whole": 3.0, "wide": 123456789012345680.0,
          "l": [3, 1, 2], "d": {"a": [1.0, None, "q'\"\n"], "b": 1, "items": 5}, "nested": [{"k": "v", "z": 0}, {"k": "w"}], "el": [], "ed": {}, "html": "<a href='x'>&</a>", "lines": "a\nb\r\nc\u2028d\n"}
LANGUAGE = r"""
{{ s }} {{ n }} {{ t }} {{ f }} {{ i }} {{ neg }} {{ x }} {{ big }} {{ tiny }} {{ whole }} {{ wide }}
{{ l }} {{ d }} {{ nested }} {{ el }} {{ ed }} {{ (1,) }} {{ (1, 'a') }} {{ [u, html] }}
{{ l ~ d ~ n ~ t ~ big ~ whole ~ u }}|{{ 'a' ~ 1 ~ 'b' }}|{{ 1 ~ 2 }}|{{ missing ~ 'x' }}
{{ 'a' ~ i * 2 ~ 'b' }} {{ i * 2 ~ s }} {{ 2 * 3 * 4 }} {{ '2' + 3 * 4 ~ 5 }} {{ i // 2 * 3 }} {{ i * 2 // 3 }} {{ -i * 2 }} {{ 2 * -i }} {{ (1 + 2) * (3 + 4) }}
{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1, 2] * 2 }} {{ 2 * [0] }} {{ (1,) * 2 }} {{ 'x' * -1 }} {{ 1.5 * 2 }} {{ true * 3 }} {{ l[0] * l[1] }}
{{ 'a' * 'b' }}
{{ [1] * 1.5 }}
{{ n * 2 }}
{{ 7 / 2 }} {{ 8 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7 % 3 * 2 }} {{ 1 / 3 }} {{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1_000 }}
{{ 1 / 0 }}
{{ s + i }}
{{ missing }}|{{ missing|length }}|{{ missing|default('d') }}|{{ e|default('d') }}|{{ e|default('d', true) }}|{{ n|default('d') }}|{{ missing is defined }}|{{ missing == 1 }}|{{ missing or 'o' }}
{{ missing.attribute }}
{{ missing + 'a' }}
{{ missing() }}
{{ d.missing }}|{{ d['missing'] }}|{{ l[9] }}|{{ s.missing }}|{{ i.missing }}|{{ n.missing }}
{{ d.missing.more }}
{{ d.b }} {{ d['b'] }} {{ d['items'] }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 0) }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for k, v in d | items %}{{ k }}{% endfor %}{% for k, v in d | dictsort %}{{ k }}{% endfor %}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ s.swapcase() }} {{ u.upper() }} {{ "they're bill's 3rd x-ray".title() }} {{ 'ABC dEF'.capitalize() }}
[{{ '  a '.strip() }}] [{{ '  a '.lstrip() }}] [{{ '  a '.rstrip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ 'abcab'.strip('ab') }}] [{{ '\x1f a \u2003'.strip() }}] [{{ 'www.a.com'.lstrip('w.') }}]
{{ s.split() }} {{ s.split(',') }} {{ s.split(', ') }} {{ 'a  b c'.split() }} {{ 'a  b c'.split(' ') }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.split(maxsplit=1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ ' a b  c '.rsplit(None, 1) }} {{ ' a b  c '.split(None, 1) }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'abc'.split('') }}
{{ 'a b c'.split(' ')[-1] }} {{ 'a</think>b'.split('</think>')[0] }} {{ 'abc'.partition('b') }} {{ 'abcbd'.rpartition('b') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }}
{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'H')) }} {{ s.startswith('l', 2) }} {{ s.endswith('lo', 0, 5) }} {{ s.startswith('') }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.replace('', '-') }} {{ ''.replace('', 'x') }} {{ s.replace('zz', 'y') }}
{{ s.find('o') }} {{ s.find('z') }} {{ s.rfind('o') }} {{ s.find('o', 5) }} {{ u.find('ẞ') }} {{ s.index('W') }} {{ s.count('l') }} {{ s.count('') }} {{ 'aaa'.count('aa') }}
{{ s.index('z') }}
{{ ','.join(['a', 'b']) }} {{ ''.join([]) }} {{ '-'.join('abc') }}
{{ ','.join([1]) }}
{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }} {{ 'a'.center(4) }}| {{ 'ab'.center(5, '*') }} {{ 'abc'.center(6, '*') }}
{{ '12'.isdigit() }} {{ 'a1'.isdigit() }} {{ ''.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ '½'.isnumeric() }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ ''.splitlines() }}
{{ '{} and {}'.format(1, 'b') }} {{ '{0}{1}{0}'.format('a', 2.0) }} {{ '{name}: {{}}'.format(name=n) }}
{{ '{}'.format() }}
{{ s[0] }} {{ s[-1] }} {{ s[1:3] }} {{ s[:-1] }} {{ s[-3:] }} {{ s[::2] }} {{ s[::-1] }} {{ u[1:] }} {{ s[5:2] }}| {{ s[-100:3] }} {{ s[100:] }}|
{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[-2:] }} {{ l[1:][0] }} {{ l[1:][-1] }} {{ (l + [9])[3] }} {{ (l + [9])[-1] }}
{{ l + [4] }} {{ (l + [4]) | length }} {{ [] + [] }} {{ (1,) + (2,) }} {{ l == [3, 1, 2] }} {{ l[1:] == [1, 2] }} {{ d == {'a': 1} }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }}
{{ 1 in l }} {{ 9 not in l }} {{ 'b' in d }} {{ 'ell' in s }} {{ 'x' not in s }} {{ n in [none] }} {{ 1 in (1, 2) }} {{ missing in l }} {{ 'a' in missing }}
{{ 1 in n }}
{{ 1 < 2 }} {{ 1 <= i < 9 }} {{ 'a' < 'b' }} {{ 3 != 3.0 }} {{ not t }} {{ not t == f }} {{ t and e }} {{ e or 'x' }} {{ n and 1 }} {{ 1 and 2 or 3 }}
{{ s is string }} {{ l is string }} {{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s is iterable }} {{ d is iterable }} {{ i is iterable }} {{ n is none }} {{ t is boolean }} {{ i is number }} {{ t is number }} {{ x is number }} {{ i is integer }} {{ t is integer }} {{ x is float }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ t is true }} {{ 1 is true }} {{ f is false }} {{ i is odd }} {{ i is even }} {{ i is divisibleby 7 }} {{ s is not none }} {{ n is not defined }} {{ i is eq 7 }} {{ 1 is in l }} {{ n is sameas none }} {{ s is lower }} {{ range is callable }}
{{ s|length }} {{ u|length }} {{ l|length }} {{ d|length }} {{ l|first }} {{ l|last }} {{ s|first }} {{ l|sum }} {{ l|min }} {{ l|max }} {{ l|sort }} {{ l|reverse|list }} {{ s|reverse }} {{ l|join(',') }} {{ l|join }} {{ nested|map(attribute='k')|join('/') }} {{ nested|join(', ', attribute='k') }} {{ [1.0, none, true]|join('|') }} {{ s|upper }} {{ s|lower }} {{ s|title }} {{ s|capitalize }} {{ '  x '|trim }}| {{ 'xax'|trim('x') }} {{ s|replace('o', '0') }} {{ s|list }} {{ '5'|int }} {{ 'z'|int }} {{ '5.7'|int }} {{ '5.5'|float }} {{ 3.7|int }} {{ i|string }} {{ n|string }} {{ l|string }} {{ big|string }} {{ i|float }} {{ -3|abs }} {{ 2.567|round(1) }} {{ 2.5|round }} {{ 7|round }} {{ html|escape }} {{ html|safe }} {{ [1, 1, 2]|unique|list }}
{{ nested|selectattr('z', 'defined')|list }} {{ nested|rejectattr('z', 'defined')|list }} {{ nested|selectattr('k', 'equalto', 'v')|list }} {{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ l|map('string')|list }} {{ ['a']|map('upper')|list }} {{ nested|map(attribute='z', default=1)|list }} {{ l|batch(2)|list }} {% for k, g in nested|groupby('k') %}{{ k }}{{ g }}{% endfor %}
{{ n|length }}
{{ s|unknown_filter }}
{{ s is unknown_test }}
{{ s.unknown_method() }}
{{ l.append(4) }}
{{ d.update({}) }}
{{ d.pop('b') }}
{{ s|split(',') }}
{{ 'a\nb'|indent }} {{ 'a\nb'|indent(2) }} {{ 'a\n\nb'|indent(2, true) }} {{ 'a\n\nb'|indent(1, blank=true) }} {{ 'a\nb'|indent(width=3) }}
{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ n|tojson }} {{ t|tojson }} {{ x|tojson }} {{ big|tojson }} {{ tiny|tojson }} {{ whole|tojson }} {{ wide|tojson }} {{ u|tojson }} {{ html|tojson }} {{ (1, 2)|tojson }} {{ el|tojson }} {{ ed|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ "\x7f\x01\u2028/\t\b\f"|tojson }}
{{ d|tojson(indent=2) }} {{ d|tojson(indent=4, sort_keys=true) }} {{ l|tojson(indent=0) }} {{ el|tojson(indent=2) }} {{ ed|tojson(indent=2) }} {{ d|tojson(true) }} {{ u|tojson(ensure_ascii=true) }} {{ '👩'|tojson(ensure_ascii=true) }} {{ d|tojson(separators=(',', ':')) }} {{ d|tojson(separators=[',', ':'], indent=1) }} {{ l|tojson(indent='\t') }} {{ l|tojson(indent=none) }}
{{ missing|tojson }}
{{ range|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ 'a' if t else 'b' }} {{ 'a' if f }}| {{ 'a' if f else 'b' if f else 'c' }} {{ ('a' if t) ~ 'z' }} {{ 'p' ~ ('q' if t else 'r') ~ 's' }}
{% for a in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('o', 'e') }}{{ loop.changed(a) }} {% endfor %}
{% for a in l if a > 1 %}{{ a }}{{ loop.index }}{% else %}none{% endfor %}{% for a in el %}{{ a }}{% else %}none{% endfor %}{% for a in missing %}{% else %}undefined{% endfor %}{% for c in 'abc' %}{{ c }}.{% endfor %}
{% for a in n %}{% endfor %}
{% for a in 5 %}{% endfor %}
{% for a in range(5) %}{% if a == 1 %}{% continue %}{% endif %}{% if a == 3 %}{% break %}{% endif %}{{ a }}{% endfor %} {{ range(3)|list }} {{ range(1, 7, 2)|list }} {{ range(3, 0, -1)|list }} {{ range(0)|list }}
{% set a = 1 %}{% for b in l %}{% set a = b %}{% endfor %}{{ a }} {% set ns = namespace(a=1, b='x') %}{% for b in l %}{% set ns.a = ns.a + b %}{% endfor %}{{ ns.a }} {% if true %}{% set a = 5 %}{% endif %}{{ a }} {% set a, b = 1, 2 %}{{ a }}{{ b }} {% set ns.c %}block{{ a }}{% endset %}{{ ns.c }} {{ ns.missing }}|
{% set ns = namespace() %}{% set ns.l = [] %}{% for a in l %}{% set ns.l = ns.l + [a * 2] %}{% endfor %}{{ ns.l }} {% set ns.d = dict(ns.d or {}, x=1) %}{{ ns.d }} {{ dict(a=1) }} {{ dict(d, b=2)['b'] }}
{% macro m(a, b='d', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m(b=1) }}{% macro r(k) %}{{ k }}{% if k > 0 %}{{ r(k - 1) }}{% endif %}{% endmacro %}{{ r(3) }} {{ m('x')|length }} {{ m(1).strip('[') }}
{% macro m() %}{{ caller('q') }}{% endmacro %}{% call(x) m() %}<{{ x }}>{% endcall %} {% macro k(a) %}{{ a.b }}{{ s }}{% endmacro %}{{ k(d) }}
{% generation %}{% set q = 1 %}a{{ q }}{% endgeneration %}{{ q }} {%- generation -%}  b  {%- endgeneration -%} {% if true %}{% generation %}{% for a in l %}{{ a }}{% endfor %}{% endgeneration %}{% endif %}
{# generation {% generation %} #}{{ '{% generation %}' }}{% raw %}{% generation %}{{ a ~ b * c }}{% endraw %}{{ '~ * {{ }} %}' ~ "'*'" }}
{{ 'a\tb\\n\x41\u00e9\d\'' }}|{{ "a" 'b' }}|{{ 'é'  "\"" }}
{% if not (t and f) and not n %}y{% elif t %}z{% else %}w{% endif %}{% if l %}l{% endif %}{% if el or ed or e %}no{% endif %}{% if 0.0 %}no{% endif %}
{{ raise_exception('no: ' ~ i) }}
{{ raise_exception(d) }}
{% if
{{ unclosed
{% for a in l %}
{{ a b }}
{% endif %}
{% unknown %}
{{ ) }}
{{ [1, 2 }}
{{ 1 +* 2 }}
{% set s = s %}{{ s }}{% set s = s ~ '!' %}{{ s }}{% set q = missing %}{{ q is defined }}|{% set q = l[1:] %}{{ q }} {{ q|tojson }} {{ q|length }}
{{ {'a': 1 ~ 2, 'b': [3 * 4, 5 ~ 6]} }} {{ (1 ~ 2, 3 * 4) }} {{ m2(1 ~ 2) if f else 'x' ~ 'y' }} {{ d['a' ~ ''] }} {{ l[1 * 1] }} {{ s[1 * 1:2 * 2] }} {{ d.get('a' ~ '', 1 * 2) }}
{{ 'a' ~ 'b'|upper ~ 'c' }} {{ ('a' ~ 'b')|upper }} {{ 'a' ~ 'b' == 'ab' }} {{ 'a' ~ 'b' in ['ab'] }} {{ 'x' ~ n is none }} {{ 2 * l|length }} {{ 2 * 2 ** 3 }} {{ not 'a' ~ 'b' }} {{ 1 ~ 2 + '3' }}
{{ 'abc'|first ~ 'abc'|last }} {{ s is string and l is iterable }} {{ 'a' is in 'abc' and 'x' ~ 'y' }} {{ s is not string or 'p' ~ 'q' }}
{{ 'a\a\v\U0001F600\/\b' }}|{{ "\'" }}{{ '\101' }}
{{ n|list }}
{{ n|join }}
{{ n|map('upper')|list }}
{% for a in (n) %}{% endfor %}
{% for a in l if a != 2 recursive %}{{ a }}{% endfor %}{% for a in l + [4] if a is odd %}{{ a }}{% endfor %}{% for a in (l if t else el) %}{{ a }}{% endfor %}{% for a, b in [(1, 2), (3, 4)] %}{{ a ~ b }}{% endfor %}{% for a in [1, 2] %}{% for b in [3, 4] %}{{ a * b }}{% endfor %}{% endfor %}
{{ {'a': 1}.get([]) }}
{{ {'a': {'b': 1}}}} {{ {'a': {}}['a'] }} {{ [[1, 2], [3]][0][1] }} {{ '{{ }}' ~ "%}" }} {{ {} ~ [] ~ () }}
{% set x = {'a': [1, {'b': 2 * 3}]} %}{{ x }} {% set x = x.a[1:] %}{{ x }} {{ x == [{'b': 6}] }} {{ x + x }} {{ (x + x)|tojson }} {% set y = x + [1] %}{{ y[-1] }} {{ y[:1] }} {{ y|last }}
{% for m in l %}{% set t = m ~ '-' if not loop.last else m ~ '' %}{{ t }}{% endfor %} {% for k, v in {'a': 1, 'b': [2]}.items() if v is not string %}{{ k ~ '=' ~ v }};{% endfor %}
{% set ns = namespace(found=false, text='') %}{% for a in l %}{% if a == 1 and not ns.found %}{% set ns.found = true %}{% set ns.text = ns.text ~ a * 10 ~ ',' %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.text }}
{% if 'x' not in d and d.b is defined and d['b'] is not none and (d.get('q') is none or d.q) %}y{% endif %}{{ 'y' if s[:5] == 'Hello' and s[-1] != 'x' else 'z' }}{{ not (t and f) or n }}
{{ s.split(' ')[0].strip(',').lower() ~ s.split()[-1].upper() }} {{ (s ~ e).replace('l', '') | length * 2 }} {{ '%s-%d-%.2f' | format(s, 3, 1.5) }} {{ '\n'.join(l | map('string')) }}
{{ l|tojson|length }} {{ d|items|list|length }} {{ nested|map(attribute='k')|map('upper')|join('+') }} {{ nested|tojson|replace('"', "'") }} {{ [d, l]|map('length')|list }} {{ 'a,b'.split(',')|tojson }} {{ l|sort(reverse=true)|join }} {{ d|dictsort(reverse=true)|map('first')|list }}
{{ '<|%s|>' % s }} {{ '%s-%s' % (1, 2) * 2 }} {{ '%d%%' % i ~ 'x' }} {{ 'a%sb' % 'x'|upper }} {{ 2 * 7 % 4 }} {{ ('%s' % 2.0) * 2 }}
{{ 'a\nb\n'|indent(2) }}| {{ lines|indent }}| {{ 'a\n\nb'|indent('>', first=true, blank=true) }} {{ ''|indent(first=true) }}| {{ true * 1.5 }} {{ 2.5 * false }} {{ true * 'ab' }}
{{ namespace(a=1).a }} {{ namespace({'b': 2}).b }}
{{ d.b + d.b * 2 - 1 }} {{ -l[0] }} {{ - 3 }} {{ +3 }} {{ 3 - -3 }} {{ [-1, -2] }} {{ (-1) ** 2 }} {{ 10 - 2 - 3 }} {{ 2 ** 3 ** 2 }}
  {{- ' x ' -}}  |  {%+ if t %} plus {% endif +%}
{{ strftime_now('%Y') | length }} {{ strftime_now('%d %b %Y')[2] }}
{{ 'x' if 'a' in d else 'y' }}{{ d.a[2] }}{{ nested[0].k }}{{ nested[-1]['k'] }}{{ nested.0.k }}
""".strip("\n").split("\n")
# Templates of several lines.
LANGUAGE += [
    "  {% if t %}\n    lstrip\n  {% endif %}\n",
    "a\r\nb\r{% if true %}\r\nc\r\n{% endif %}\r\nd\r\n", "x\n\n", "x\n", "{{ 'a' }}\n", "{% if true %}\n  y\n{% endif %}\n\n  z", "  {# c #}\n  {#- d -#}\n e", "{% for a in l %}\n- {{ a }}\n{% endfor %}\nend\n",
    "{{ 'a\nb' }}{{ \"c\\\nd\" }}", "{%- set a -%}\n  b\n{%- endset -%}\n{{ a }}", "line 1\n{{ missing.x }}\n", "{{\n  'a'\n  ~ 'b'\n}}", "\t{% if true %}\t\n\tq\t{% endif %}\t\n", "{% raw -%}\n x {%- endraw %}\n y", "{% raw %}\n x\n{% endraw %}\n y",
    "{% set x =\n  [1,\n   2]\n%}{{ x }}", "é {{ 'é' ~ \"ü\" }} ", "{{ s }}{{ '' }}{{}}", "{{ }}", "{%%}", "{% set %}", "{% set a.b.c = 1 %}", "{% set 1 = 2 %}", "{% for in l %}{% endfor %}", "{{ 'unclosed }}", "{# unclosed", "{% raw %} unclosed",
]


def outcome(source, messages, **more):
    try:
        return TOKENIZER.apply_chat_template(messages, chat_template=source, tokenize=False, **more)
    except Exception as error:  # Any class: of jinja2, of Python, of transformers.
        text = str(error) if type(error).__name__ == "TemplateError" else None
        return {"error": text}


def template(name):
    with open(HERE / f"{name}.jinja", newline="") as file:
        return file.read()


def expected():
    names = sorted(file.stem for file in HERE.glob("*.jinja"))
    return {name: {key: outcome(template(name), each["messages"], tools=each.get("tools"), add_generation_prompt=each.get("add_generation_prompt", False), **each.get("variables", {}))
                   for key, each in CONVERSATIONS.items()} for name in names}


def write(name, value):
    (HERE / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", newline="")


def timed():
    messages = [say("system", "Be brief."), *[say("user" if i % 2 == 0 else "assistant", f"message {i}, a sentence of usual length.") for i in range(9)]]
    times = []
    for _ in range(2000):
        start = time.perf_counter()
        TOKENIZER.apply_chat_template(messages, chat_template=template_text, tools=[WEATHER], tokenize=False, add_generation_prompt=True)
        times.append(time.perf_counter() - start)
    print(f"{statistics.median(times) * 1e6:.1f} µs")


if sys.argv[1:] == ["--time"]:
    template_text = template("llama31_tools")
    timed()
else:
    write("expected.json", {"tokens": TOKENS, "conversations": CONVERSATIONS, "prompts": expected()})
    write("language.json", {"values": VALUES, "templates": [[source, outcome(source, [say("user", "q")], **VALUES)] for source in LANGUAGE]})
