// SPDX-License-Identifier: Apache-2.0
/*
 * The part of Jinja2 that chat templates use: what small templates make, as Jinja2 with
 * transformers' options makes it, where they are refused, and where their work ends.
 */
#include "support.h"

#include "io/jinja/jinja.h"
#include "nn_ctx.h"

// clang-format off
static const char variables[] =
    "{\"n\": null, \"t\": true, \"i\": 7, \"r\": 1.5, \"s\": \"Hello, w\303\266rld"
    "\", \"e\": \"\", \"l\": [3, 1, 2], \"w\": [\"b\", \"A\", \"a\", \"c\", \"B\"], \"d\": {"
    "\"b\": 1, \"a\": [1, {\"x\": \"y\\\"<\"}], \"items\": \"key\"}, \"m\": [{\"role\": \"sys"
    "tem\", \"content\": \" Be kind. \"}, {\"role\": \"user\", \"content\": \"Hi <b>\"}, {"
    "\"role\": \"assistant\", \"content\": \"<think>\\nhm\\n</think>\\n\\nYes\"}]}";

/* A template, and what Jinja2 makes of it. */
static const char *const rendered[][2] = {
    {"text {{ s }} {{ n }} {{ t }} {{ i }} {{ r }} {{ undefined_one }}|",
     "text Hello, w\303\266rld None True 7 1.5 |"},
    {"{{ l }} {{ d }} {{ (1, 'a') }} {{ (1,) }} {{ () }} {{ [none, true, 1.0, 1e20, 1e-7, -0.5"
     ", 123456789.125] }}",
     "[3, 1, 2] {'b': 1, 'a': [1, {'x': 'y\"<'}], 'items': 'key'} (1, 'a') (1,) () [None, True"
     ", 1.0, 1e+20, 1e-07, -0.5, 123456789.125]"},
    {"{{ [\"it's\", 'q\"', \"b'\\\"\", \"\\n\\t\\\\\", \"\\x7f\", \"\\u00e9\"] }}",
     "[\"it's\", 'q\"', 'b\\'\"', '\\n\\t\\\\', '\\x7f', '\303\251']"},
    {"{{ s[0] }}{{ s[-1] }}{{ s[7:9] }}{{ s[::-1] }}{{ s[:5] }}{{ s[5:] }}{{ s[-3:] }}{{ s[::2"
     "] }}{{ s[99:] }}|{{ s[3:1] }}",
     "Hdw\303\266dlr\303\266w ,olleHHello, w\303\266rldrldHlo \303\266l|"},
    {"{{ l[0] }}{{ l[-1] }}{{ l[1:] }}{{ l[::-1] }}{{ l[:-1] }}{{ l[9] }}{{ l[-2:99] }}{{ l[2:"
     ":-2] }}",
     "32[1, 2][2, 1, 3][3, 1][1, 2][2, 3]"},
    {"{{ d.b }}{{ d['b'] }}{{ d.get('b') }}{{ d.get('z') }}{{ d.get('z', 4) }}{{ d['items'] }}"
     "{{ d.nope }}{{ d.a[1].x }}{{ m.0.role }}",
     "111None4keyy\"<system"},
    {"{% for k, v in d.items() %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loo"
     "p.revindex0 }}/{{ loop.length }}{{ loop.first }}{{ loop.last }} {{ k }}={{ v }};{% endfo"
     "r %}",
     "1/0/3/2/3TrueFalse b=1;2/1/2/1/3FalseFalse a=[1, {'x': 'y\"<'}];3/2/1/0/3FalseTrue items"
     "=key;"},
    {"{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}{{ \"\" if loop.last else \",\" }}{% el"
     "se %}none{% endfor %}{% for x in [] %}{% else %}none{% endfor %}",
     "1:3,2:2none"},
    {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %"
     "}{% endif %}{% endfor %}",
     "32"},
    {"{% for x in l %}{{ loop.previtem }}<{{ x }}<{{ loop.nextitem }} {{ loop.cycle('odd', 'ev"
     "en') }};{% endfor %}",
     "<3<1 odd;3<1<2 even;1<2< odd;"},
    {"{% for a in l %}{% for b in l %}{{ loop.depth }}{{ loop.depth0 }}{{ a * b }} {% endfor %"
     "}{% endfor %}",
     "109 103 106 103 101 102 106 102 104 "},
    {"{% set x = 1 %}{% for a in l %}{{ x }}{% set x = a %}{{ x }}{% endfor %}{{ x }}",
     "1311121"},
    {"{% set ns = namespace(a=1, b='x') %}{% for a in l %}{% set ns.a = ns.a + a %}{% endfor %"
     "}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
     "7x"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a = 1, %}{{ a }}",
     "12(1,)"},
    {"{% set x %}  block {{ i }} {% endset %}[{{ x }}]{% set y | trim | upper %} up {% endset "
     "%}[{{ y }}]",
     "[  block 7 ][UP]"},
    {"{% macro f(a, b=2, c='x' ~ i) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c="
     "3) }} {{ f(b=5, a=4) }} {{ f() }} {{ f(1)|length }}",
     "12x7 123 45x7 2x7 4"},
    {"{% macro wrap(x) %}<{{ x }}>{{ caller() }}</{{ x }}>{% endmacro %}{% call wrap('a') %}in"
     " {{ s }}{% endcall %}",
     "<a>in Hello, w\303\266rld</a>"},
    {"{% macro each(x) %}{% for a in x %}{{ caller(a, loop.index) }}{% endfor %}{% endmacro %}"
     "{% call(v, k) each(l) %}{{ k }}{{ v }};{% endcall %}",
     "13;21;32;"},
    {"{% macro fact(n) %}{{ n * fact(n - 1)|int if n > 1 else 1 }}{% endmacro %}{{ fact(6) }}",
     "720"},
    {"{% filter upper | replace('L', '_') %}hello {{ s }}{% endfilter %}",
     "HE__O HE__O, W\303\226R_D"},
    {"{% with a = 1, b = s %}{{ a }}{{ b }}{% endwith %}{{ a }}",
     "1Hello, w\303\266rld"},
    {"{% generation %}{{ s }}{% endgeneration %}",
     "Hello, w\303\266rld"},
    {"{% if n %}a{% elif i == 7 and not t %}b{% elif s in 'Hello, w\\u00f6rld!' or false %}c{%"
     " else %}d{% endif %}",
     "c"},
    {"{% if n is none and i is number and s is string and l is sequence and l is iterable and "
     "d is mapping and t is boolean and t is true and zz is undefined and zz is not defined %}"
     "yes{% endif %}",
     "yes"},
    {"{{ 1 is odd }}{{ 2 is even }}{{ 9 is divisibleby 3 }}{{ 1 is integer }}{{ 1.0 is float }"
     "}{{ false is false }}{{ 1 is sameas 1 }}{{ 'a' is lower }}{{ 'A' is upper }}{{ 'x' is in"
     " ['x'] }}{{ 3 is eq 3 }}{{ 3 is gt(2) }}{{ 3 is lessthan 2 }}{{ f is callable }}{{ 'uppe"
     "r' is filter }}{{ 'odd' is test }}",
     "TrueTrueTrueTrueTrueTrueTrueTrueTrueTrueTrueTrueFalseTrueTrueTrue"},
    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }"
     "} {{ 2 ** -1 }} {{ 1.5 + 1 }} {{ 3 - 5 }} {{ 2 * 'ab' }} {{ [0] * 3 }} {{ [1] + [2] }} {"
     "{ (1,) + (2,) }} {{ -i }} {{ +i }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
     "3 -4 1 2 3.5 3.0 1024 0.5 2.5 -2 abab [0, 0, 0] [1, 2] (1, 2) -7 7 3.0 0.5"},
    {"{{ 1 < 2 < 3 }}{{ 1 < 2 > 3 }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ 1 == 1.0 }}{{ true "
     "== 1 }}{{ 'a' != 'b' }}{{ 2 not in l }}{{ 'b' in d }}{{ not l }}{{ n or 'x' }}{{ i and 0"
     " }}{{ l == [3, 1, 2] }}{{ d == {} }}",
     "TrueFalseTrueTrueTrueTrueTrueFalseTrueFalsex0TrueFalse"},
    {"{{ 'a' ~ 1 ~ none ~ true ~ 1.5 }}{{ 'a' 'b' \"c\" }}{{ 'x' if t }}{{ 'x' if n }}|{{ 'x' "
     "if n else 'y' if t else 'z' }}",
     "a1NoneTrue1.5abcx|y"},
    {"{{ s | upper }}{{ s | lower }}{{ s | capitalize }}{{ 'the quick-brown (fox)' | title }}{"
     "{ \"they're bill's\".title() }}{{ s | length }}{{ l | count }}{{ d | length }}{{ '  x ' "
     "| trim }}|{{ 'xxaxx' | trim('x') }}",
     "HELLO, W\303\226RLDhello, w\303\266rldHello, w\303\266rldThe Quick-Brown (Fox)They'Re Bi"
     "ll'S1233x|a"},
    {"{{ l | join(', ') }}{{ m | join('/', attribute='role') }}{{ l | first }}{{ l | last }}{{"
     " [] | first }}{{ s | first }}{{ s | last }}{{ l | sum }}{{ l | min }}{{ l | max }}{{ l |"
     " sort }}{{ l | sort(reverse=true) }}{{ w | sort }}{{ w | sort(case_sensitive=true) }}{{ "
     "m | sort(attribute='role') | map(attribute='role') | list }}{{ w | unique | list }}{{ l "
     "| reverse | list }}{{ 'abc' | reverse }}{{ s | list }}",
     "3, 1, 2system/user/assistant32Hd613[1, 2, 3][3, 2, 1]['A', 'a', 'b', 'B', 'c']['A', 'B',"
     " 'a', 'b', 'c']['assistant', 'system', 'user']['b', 'A', 'c'][2, 1, 3]cba['H', 'e', 'l',"
     " 'l', 'o', ',', ' ', 'w', '\303\266', 'r', 'l', 'd']"},
    {"{{ d | dictsort }}{{ {'b': 1, 'A': 2} | dictsort(by='value') }}{{ {'b': 1, 'A': 2} | dic"
     "tsort(true, reverse=true) }}{{ d | items | list }}{{ d.keys() | list }}{{ d.values() | l"
     "ist | length }}{{ d | list }}",
     "[('a', [1, {'x': 'y\"<'}]), ('b', 1), ('items', 'key')][('b', 1), ('A', 2)][('b', 1), ('"
     "A', 2)][('b', 1), ('a', [1, {'x': 'y\"<'}]), ('items', 'key')]['b', 'a', 'items']3['b', "
     "'a', 'items']"},
    {"{{ zz | default('d') }}{{ e | default('d') }}{{ e | default('d', true) }}{{ n | d('x', b"
     "oolean=true) }}{{ zz | default }}|",
     "ddx|"},
    {"{{ l | map('string') | list }}{{ m | map(attribute='content') | map('trim') | list }}{{ "
     "m | selectattr('role', 'equalto', 'user') | list }}{{ m | rejectattr('role', 'in', ['use"
     "r', 'system']) | map(attribute='role') | join }}{{ l | select('odd') | list }}{{ l | rej"
     "ect('gt', 1) | list }}{{ [0, 1] | select | list }}{{ m | selectattr('nope') | list }}{{ "
     "m | map(attribute='nope', default='q') | join(',') }}",
     "['3', '1', '2']['Be kind.', 'Hi <b>', '<think>\\nhm\\n</think>\\n\\nYes'][{'role': 'user"
     "', 'content': 'Hi <b>'}]assistant[3, 1][1][1][]q,q,q"},
    {"{{ l | batch(2) | list }}{{ l | batch(2, 0) | list }}{{ '42' | int }}{{ ' 4.7 ' | int }}"
     "{{ 'x' | int }}{{ 'x' | int(9) }}{{ 3.9 | int }}{{ '1.5' | float }}{{ 3 | float }}{{ 'x'"
     " | float }}{{ -3 | abs }}{{ 5 | string | length }}",
     "[[3, 1], [2]][[3, 1], [2, 0]]4240931.53.00.031"},
    {"{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, "
     "blank=true) }}|{{ 'a\\nb' | indent('> ') }}|{{ 'a\\n' | indent }}|",
     "a\n    b\n\n    c|  a\n  b|a\n  \n  b|a\n> b|a\n|"},
    {"{{ d | tojson }}{{ s | tojson }}{{ s | tojson(ensure_ascii=true) }}{{ '\\U0001f600' | to"
     "json(ensure_ascii=true) }}{{ d | tojson(indent=2) }}{{ [] | tojson(indent=2) }}{{ {} | t"
     "ojson(indent=4) }}{{ d | tojson(separators=(',', ':')) }}{{ d | tojson(sort_keys=true) }"
     "}{{ [1.0, none, true, '\\x01\\b\"\\\\/'] | tojson }}{{ {1: 2, none: 3, true: 4, 1.5: 5} "
     "| tojson }}",
     "{\"b\": 1, \"a\": [1, {\"x\": \"y\\\"<\"}], \"items\": \"key\"}\"Hello, w\303\266rld"
     "\"\"Hello, w\\u00f6rld\"\"\\ud83d\\ude00\"{\n  \"b\": 1,\n  \"a\": [\n    1,\n    {\n   "
     "   \"x\": \"y\\\"<\"\n    }\n  ],\n  \"items\": \"key\"\n}[]{}{\"b\":1,\"a\":[1,{"
     "\"x\":\"y\\\"<\"}],\"items\":\"key\"}{\"a\": [1, {\"x\": \"y\\\"<\"}], \"b\": 1, \"items"
     "\": \"key\"}[1.0, null, true, \"\\u0001\\b\\\"\\\\/\"]{\"1\": 4, \"null\": 3, \"1.5\": 5"
     "}"},
    {"{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ ' a b  c '."
     "split(none, 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a--b'.split('--')[-1] }}{{ 'a"
     "\\nb\\r\\nc\\n'.splitlines() }}{{ 'a\\nb'.splitlines(true) }}",
     "['a', 'b', '', 'c']['a', 'b']['a', 'b,c']['a', 'b  c ']['a,b', 'c']b['a', 'b', 'c']['a"
     "\\n', 'b']"},
    {"{{ ' x '.strip() }}|{{ ' x '.lstrip() }}|{{ ' x '.rstrip() }}|{{ '\\n\\nx\\n'.strip('"
     "\\n') }}|{{ 'abcba'.strip('ab') }}|{{ 'xyz'.lstrip('xy') }}|{{ '\\u3000x\\x1c'.strip() }"
     "}|",
     "x|x | x|x|c|z|x|"},
    {"{{ s.startswith('Hel') }}{{ s.endswith(('x', 'ld')) }}{{ s.upper() }}{{ s.lower() }}{{ s"
     ".replace('l', 'L') }}{{ s.replace('l', 'L', 1) }}{{ 'ab'.replace('', '-') }}{{ s.find('w"
     "') }}{{ s.find('zz') }}{{ s.rfind('l') }}{{ s.count('l') }}{{ '-'.join(['a', 'b']) }}{{ "
     "'abc'.removeprefix('a').removesuffix('c') }}{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}{{ '"
     " '.isspace() }}{{ 'a1'.isalnum() }}{{ 'Ab'.isupper() }}{{ 'ab'.islower() }}{{ 'stra"
     "\\u00dfe'.upper() }}{{ 'hELLO wORLD'.capitalize() }}",
     "TrueTrueHELLO, W\303\226RLDhello, w\303\266rldHeLLo, w\303\266rLdHeLlo, w\303\266rld-a-b"
     "-7-1103a-bbTrueTrueTrueTrueFalseTrueSTRASSEHello world"},
    {"{{ '{} {1} {x} {{}}'.format('a', 'b', x=3) if false else '{0}{1}{x}{{}}'.format('a', 'b'"
     ", x=3) }}{{ '%s=%d%%' % ('a', 3) }}{{ '%s' % 'x' }}{{ '%s-%s' | format(1, 'b') }}",
     "ab3{}a=3%x1-b"},
    {"{{ range(3) | list }}{{ range(1, 7, 2) | list }}{{ range(3, 0, -1) | list }}{{ dict(a=1,"
     " b=2) }}{{ {'a': 1, 'a': 2} }}{{ l.index(1) }}{{ l.count(3) }}",
     "[0, 1, 2][1, 3, 5][3, 2, 1]{'a': 1, 'b': 2}{'a': 2}11"},
    {"{{ '<' + ('&\"' | safe) + \">'\" }}{{ '<' ~ ('&' | safe) }}{{ '<a>' | escape }}{{ ('<' |"
     " e) + '&' }}",
     "&lt;&\"&gt;&#39;<&&lt;a&gt;&lt;&amp;"},
    {"  {%- if t -%}   x   {%- endif %}   y {{- ' z ' -}}   end",
     "x   y z end"},
    {"a {# comment {{ x }} #} b {#- c -#}  d",
     "a  bd"},
    {"   {% if t %}\n   x\n   {% endif %}\n   {%+ if t %}y{% endif +%}\n z",
     "   x\n   y\n z"},
    {"{% raw %}{{ not }} {% evaluated %}{% endraw %}|{%- raw -%}  a  {%- endraw -%}  b",
     "{{ not }} {% evaluated %}|ab"},
    {"{{ \"}}\" }}{{ '%}' }}{{ {'a': {'b': 1}}.a.b }}{{ [[1], [2]][1][0] }}{{ (1 + 2) * 3 }}{{"
     " 2 ** 3 ** 2 }}{{ -2 ** 2 }}{{ not true == false }}{{ 1 if 0 else 2 }}",
     "}}%}129644True2"},
    {"{{ m[0].content | trim ~ '!' }}{{ m[-1]['content'].split('</think>')[-1].lstrip('\\n') }"
     "}{{ (m | last).role }}{{ m[1:] | length }}",
     "Be kind.!Yesassistant2"},
    {"{{ 'a\\\nb' }}{{ '\\q\\101\\x41\\u0041' }}{{ \"a\" \"\\\"\" }}",
     "ab\\qAAAa\""},
};
// clang-format on

/* Runs a template with variables of JSON in a context; the text is the test's. */
static s24_status render_in(s24_ctx *c, char *out, size_t room, const char *template,
                            const char *json)
{
    const s24_text text = {template, strlen(template)};
    s24i_jinja *jinja;
    s24i_json *root;
    s24i_jrun *run = NULL;
    s24i_jvalue string = {0};
    const char *key;
    s24_status status = s24i_jinja_parse(&jinja, c, "T", &text);
    if (status != S24_OK) return status;
    status = s24i_json_parse(&root, c, "J", json, strlen(json));
    if (status == S24_OK) {
        status = s24i_jinja_open(&run, c, jinja, strlen(json));
        s24i_json_walk walk = s24i_json_begin(root);
        for (const s24i_json *v; run && (v = s24i_json_next(&walk, &key)) != NULL;)
            s24i_jinja_set(run, key, s24i_jfrom_json(run, v));
        if (run) status = s24i_jinja_render(&string, run);
        if (status == S24_OK) snprintf(out, room, "%.*s", (int)string.bytes, string.as.text);
        s24i_jinja_close(run);
        s24_ctx_free(c, root);
    }
    s24i_jinja_free(jinja);
    return status;
}

static void test_rendered(void **state)
{
    static char out[1 << 14];
    (void)state;
    for (size_t i = 0; i < sizeof rendered / sizeof *rendered; i++) {
        if (render_in(ctx, out, sizeof out, rendered[i][0], variables) != S24_OK)
            fail_msg("%s: %s", rendered[i][0], s24_ctx_error(ctx));
        assert_string_equal(out, rendered[i][1]);
    }
}

/* What is no template: refused before it runs. */
static void test_refused_at_load(void **state)
{
    static const struct {
        const char *template;
        s24_status status;
        const char *part;
    } wrong[] = {
        {"a\n{{ x", S24_ERROR_FORMAT, "T: line 2: a tag does not end with }}"},
        {"{% if x", S24_ERROR_FORMAT, "a tag does not end with %}"},
        {"{# x", S24_ERROR_FORMAT, "a comment does not end with #}"},
        {"{% raw %} x", S24_ERROR_FORMAT, "a raw block does not end"},
        {"{{ 'x }}", S24_ERROR_FORMAT, "a string does not end with '"},
        {"{{ '\\ud800' }}", S24_ERROR_FORMAT, "\\u in a string is no escape"},
        {"{{ '\\N{DASH}' }}", S24_ERROR_FORMAT, "\\N in a string"},
        {"{{ 99999999999999999999 }}", S24_ERROR_FORMAT, "is over 64 bits"},
        {"{{ 0x10 }}", S24_ERROR_FORMAT, "base 2, 8 or 16"},
        {"{{ a ? b }}", S24_ERROR_FORMAT, "unexpected character \"?\""},
        {"{{ (a] }}", S24_ERROR_FORMAT, "unexpected ], ) was expected"},
        {"{{ a) }}", S24_ERROR_FORMAT, "unexpected )"},
        {"{{ }}", S24_ERROR_FORMAT, "an expression was expected instead of }}"},
        {"{{ a b }}", S24_ERROR_FORMAT, "}} was expected after the expression"},
        {"{{ a + }}", S24_ERROR_FORMAT, "an expression was expected"},
        {"{{ {'a' 1} }}", S24_ERROR_FORMAT, ": was expected instead of a string or number"},
        {"{{ a. }}", S24_ERROR_FORMAT, "a name was expected instead of }}"},
        {"{{ a is b is c }}", S24_ERROR_UNSUPPORTED, "the test b is not carried out"},
        {"{{ 1 is odd is even }}", S24_ERROR_FORMAT, "cannot follow one another"},
        {"{% if a %}\n\nx", S24_ERROR_FORMAT, "line 3: the template ends before its tag endif"},
        {"{% for x in y %}", S24_ERROR_FORMAT, "ends before its tag endfor"},
        {"{% for x y %}{% endfor %}", S24_ERROR_FORMAT, "in was expected"},
        {"{% for x.y in z %}{% endfor %}", S24_ERROR_FORMAT, "in was expected"},
        {"{% for 1 in z %}{% endfor %}", S24_ERROR_FORMAT, "a name to assign to"},
        {"{% set 1 = 2 %}", S24_ERROR_FORMAT, "a name to assign to"},
        {"{% endif %}", S24_ERROR_FORMAT, "\"endif\" is no tag that is expected here"},
        {"{% do x %}", S24_ERROR_FORMAT, "\"do\" is no tag"},
        {"{% if a %}{% endif b %}", S24_ERROR_FORMAT, "%} was expected at the end of the tag"},
        {"{% break %}", S24_ERROR_FORMAT, "break and continue stand in loops alone"},
        {"{% for a in b %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}",
         S24_ERROR_FORMAT, "stand in loops alone"},
        {"{% macro m(a=1, b) %}{% endmacro %}", S24_ERROR_FORMAT, "without a default follows"},
        {"{% call x %}{% endcall %}", S24_ERROR_FORMAT, "a call was expected"},
        {"{% for x in y recursive %}{% endfor %}", S24_ERROR_UNSUPPORTED, "a recursive loop"},
        {"{% include 'x' %}", S24_ERROR_UNSUPPORTED, "the tag include is not carried out"},
        {"{% extends 'x' %}", S24_ERROR_UNSUPPORTED, "the tag extends"},
        {"{% block a %}{% endblock %}", S24_ERROR_UNSUPPORTED, "the tag block"},
        {"{% import 'x' as y %}", S24_ERROR_UNSUPPORTED, "the tag import"},
        {"{{ x | urlize }}", S24_ERROR_UNSUPPORTED, "the filter urlize is not carried out"},
        {"{{ x | nothing }}", S24_ERROR_UNSUPPORTED, "the filter nothing is not carried out"},
        {"{{ x is nothing }}", S24_ERROR_UNSUPPORTED, "the test nothing is not carried out"},
        {"{{ x.translate(1) }}", S24_ERROR_UNSUPPORTED, "the method translate() is not"},
        {"{{ lipsum() }}", S24_ERROR_UNSUPPORTED, "the function lipsum() is not carried out"},
        {"{{ f(*x) }}", S24_ERROR_UNSUPPORTED, "arguments that a * unpacks"},
        {"{{ f(**x) }}", S24_ERROR_UNSUPPORTED, "arguments that a ** unpacks"},
        {"\xff", S24_ERROR_FORMAT, "T: the chat template is no UTF-8"},
    };
    char out[64];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const s24_status status = render_in(ctx, out, sizeof out, wrong[i].template, "{}");
        if (status != wrong[i].status) fail_msg("%s: %d", wrong[i].template, (int)status);
        assert_sentence(ctx, wrong[i].part);
    }
}

/* What a template cannot do with what it is given. */
static void test_refused_as_it_runs(void **state)
{
    static const char *const wrong[][2] = {
        {"\n{{ raise_exception('No ' ~ s) }}",
         "T: line 2: the chat template refuses this: No Hello"},
        {"{{ a.b }}", "a is not defined, and b was asked of it"},
        {"{{ d.x.y }}", "x is not defined, and y was asked"},
        {"{{ a['b'] }}", "a is not defined, and an item"},
        {"{{ a[1:] }}", "a is not defined, and a slice"},
        {"{{ n[1:] }}", "a NoneType has no slices"},
        {"{{ s[::0] }}", "a slice's step is 0"},
        {"{{ s['a':] }}", "whole numbers, not a str"},
        {"{{ a() }}", "a is not defined, and cannot be called"},
        {"{{ s() }}", "a str cannot be called"},
        {"{{ a + 's' }}", "a is not defined, where + needs a value"},
        {"{{ 's' + 1 }}", "+ cannot join str and int"},
        {"{{ 1 / 0 }}", "division by zero"},
        {"{{ 9223372036854775807 + 1 }}", "a number is over 64 bits"},
        {"{{ 10 ** 30 }}", "a number is over 64 bits"},
        {"{{ -'s' }}", "a number was expected after a sign, not a str"},
        {"{{ 1 < 's' }}", "no order between int and str"},
        {"{{ 1 in 's' }}", "int is not in a str"},
        {"{{ 's' in 1 }}", "str is not in a int"},
        {"{% for x in 5 %}{% endfor %}", "a int has no items"},
        {"{% for x, y in l %}{% endfor %}", "a int has no items"},
        {"{% set x, y = [1] %}", "2 values were expected to be assigned to as many names, not 1"},
        {"{% set s.x = 1 %}", "s.x is set, but s is no namespace"},
        {"{{ {l: 1} }}", "a list is no key of a dict"},
        {"{{ l.append(1) }}", "a list cannot be changed: the sandbox"},
        {"{{ d.pop('a') }}", "a dict cannot be changed"},
        {"{{ s.upper(1) }}", "upper takes 0 arguments, not 1"},
        {"{{ s.split(by=1) }}", "split has no parameter by"},
        {"{{ s.split('') }}", "split by an empty text"},
        {"{{ s.startswith(1) }}", "startswith takes a text, not a int"},
        {"{{ ','.join([1]) }}", "join takes texts, not a int"},
        {"{{ s.items() }}", "items is not defined, and cannot be called"},
        {"{{ '{}'.format() }}", "format: a field"},
        {"{{ '%s %s' % 'a' }}", "more of them than the 1 values"},
        {"{{ '%s' % (1, 2) }}", "fewer of them than the 2 values"},
        {"{{ '%x' % 1 }}", "the mark %x for a int"},
        {"{{ a | tojson }}", "tojson: a is not defined"},
        {"{{ (l | map('string')) | tojson }}", "tojson: a generator has no JSON"},
        {"{{ n | length }}", "a NoneType has no length"},
        {"{{ s | items }}", "items: a dict was expected, not a str"},
        {"{{ l | dictsort }}", "dictsort: a dict was expected"},
        {"{{ l | map }}", "map takes a filter's name"},
        {"{{ l | map('nothing') | list }}", "no filter or test of the name"},
        {"{{ l | select('nothing') | list }}", "no filter or test of the name"},
        {"{{ [1, 's'] | sort }}", "no order between"},
        {"{{ s | int(0, 16) }}", "another base than 10"},
        {"{{ range(1000000) | length }}", "range has more than 100000 numbers"},
        {"{{ range('x') }}", "range takes whole numbers"},
        {"{% if true %}{{ s | nothing }}{% endif %}", "the filter nothing is not carried out"},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "the macro m takes 1 arguments, not 2"},
        {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "the macro m has no parameter b"},
        {"{{ range }}", "a function has no text"},
    };
    char out[64];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const s24_status status = render_in(ctx, out, sizeof out, wrong[i][0], variables);
        if (status != S24_ERROR_ARGUMENT) fail_msg("%s: %d", wrong[i][0], (int)status);
        assert_sentence(ctx, wrong[i][1]);
    }
}

/* Whatever a template does, it ends. */
static void test_bounds(void **state)
{
    static const char *const wrong[][2] = {
        {"{% set l = range(99999)|list %}{% for a in range(99999) %}{% for b in l %}{% endfor %}{% "
         "endfor %}",
         "takes more than 50000000 steps"},
        {"{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for a in range(99) %}"
         "{% set ns.s = ns.s + ns.s %}{% endfor %}",
         "bytes of memory"},
        {"{{ 'x' * 99999999999 }}", "bytes of memory"},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels of"},
        {"{% set ns = namespace(l=[]) %}{% for a in range(2000) %}{% set ns.l = [ns.l] %}"
         "{% endfor %}{{ ns.l }}",
         "too deep"},
        {"{% set ns = namespace(l=[]) %}{% for a in range(2000) %}{% set ns.l = [ns.l] %}"
         "{% endfor %}{{ ns.l | tojson }}",
         "too deep"},
    };
    static char text[4096];
    char out[64];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(render_in(ctx, out, sizeof out, wrong[i][0], "{}"), S24_ERROR_ARGUMENT);
        assert_sentence(ctx, wrong[i][1]);
    }
    const char *const nested[] = {"{{ ", "((((((((((", "))))))))))", " }}"};
    strcpy(text, nested[0]);
    for (int i = 0; i < 30; i++)
        strcat(text, nested[1]);
    assert_int_equal(render_in(ctx, out, sizeof out, text, "{}"), S24_ERROR_FORMAT);
    assert_sentence(ctx, "more than 100 open brackets");
    strcpy(text, "{{ 1 }}");
    for (int i = 0; i < 150; i++)
        strcat(text, "{% if 1 %}");
    assert_int_equal(render_in(ctx, out, sizeof out, text, "{}"), S24_ERROR_UNSUPPORTED);
    assert_sentence(ctx, "more than 100 levels within one another");
    strcpy(text, "{{ 1");
    for (int i = 0; i < 300; i++)
        strcat(text, " + 1");
    assert_int_equal(render_in(ctx, out, sizeof out, strcat(text, " }}"), "{}"),
                     S24_ERROR_UNSUPPORTED);
    assert_sentence(ctx, "more than 256 operators");
    strcpy(text, "{\"a\":");
    for (int i = 0; i < 200; i++)
        strcat(text, "[");
    for (int i = 0; i < 200; i++)
        strcat(text, "]");
    assert_int_equal(render_in(ctx, out, sizeof out, "{{ a }}", strcat(text, "}")),
                     S24_ERROR_ARGUMENT);
    assert_sentence(ctx, "more than 128 levels");
}

static void test_long_template(void **state)
{
    const size_t bytes = ((size_t)1 << 20) + 1;
    char *text = test_calloc(bytes, 1);
    s24i_jinja *jinja;
    (void)state;
    memset(text, 'x', bytes);
    assert_int_equal(s24i_jinja_parse(&jinja, ctx, "T", &(s24_text){text, bytes}),
                     S24_ERROR_UNSUPPORTED);
    assert_null(jinja);
    assert_sentence(ctx, "a chat template has 1048577 bytes, at most 1048576");
    test_free(text);
}

/* Whose bytes are whose: the template's own are 1. */
static void test_marks(void **state)
{
    static const struct {
        const char *template, *text, *marks;
    } cases[] = {
        {"<{{ s }}>", "<Hey>", "10001"},
        {"{{ '<' ~ s|upper ~ '>' }}", "<HEY>", "10001"},
        {"{{ ('<' + s + '>')[1:-1] }}", "Hey", "000"},
        {"{{ s.replace('e', '_') }}", "H_y", "010"},
        {"{{ s|tojson }}", "\"Hey\"", "00000"},
        {"{{ 7 }}{{ true }}{{ [1] }}", "7True[1]", "11111010"},
        {"{{ ('a' ~ s ~ 'b').split('e')|join('|') }}", "aH|yb", "10101"},
        {"{{ (' ' ~ s ~ ' b')|trim|title }}", "Hey B", "00011"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const s24_text text = {cases[i].template, strlen(cases[i].template)};
        s24i_jinja *jinja;
        s24i_jrun *run;
        s24i_jvalue out;
        assert_int_equal(s24i_jinja_parse(&jinja, ctx, "T", &text), S24_OK);
        assert_int_equal(s24i_jinja_open(&run, ctx, jinja, 0), S24_OK);
        s24i_jinja_set(run, "s", s24i_jstring("Hey", 3, 0));
        assert_int_equal(s24i_jinja_render(&out, run), S24_OK);
        assert_int_equal(out.bytes, strlen(cases[i].text));
        assert_memory_equal(out.as.text, cases[i].text, out.bytes);
        for (uint32_t k = 0; k < out.bytes; k++)
            assert_int_equal((out.marks ? out.marks[k] : out.own) + '0', cases[i].marks[k]);
        s24i_jinja_close(run);
        s24i_jinja_free(jinja);
    }
}

static void test_names(void **state)
{
    static const char template[] = "{% if enable_thinking %}{{ x.y }}{% endif %}</think>";
    s24i_jinja *jinja;
    (void)state;
    assert_int_equal(s24i_jinja_parse(&jinja, ctx, "T", &(s24_text){template, sizeof template - 1}),
                     S24_OK);
    assert_true(s24i_jinja_reads(jinja, "enable_thinking"));
    assert_true(s24i_jinja_reads(jinja, "y"));
    assert_false(s24i_jinja_reads(jinja, "thinking"));
    assert_true(s24i_jinja_has(jinja, "</think>"));
    assert_false(s24i_jinja_has(jinja, "<think>"));
    s24i_jinja_free(jinja);
}

static void test_date(void **state)
{
    char out[64];
    (void)state;
    assert_int_equal(render_in(ctx, out, sizeof out, "{{ strftime_now('%Y')|int > 2000 }}", "{}"),
                     S24_OK);
    assert_string_equal(out, "True");
}

static s24_status many(s24_ctx *failing_ctx)
{
    char out[256];
    return render_in(failing_ctx, out, sizeof out,
                     "{% macro m(x) %}{{ x|tojson }}{% endmacro %}{% for a in range(2000) %}"
                     "{% set b = 'x' * 100 %}{% endfor %}{{ m([1]) }}",
                     "{\"a\":[1]}");
}

static void test_memory(void **state)
{
    (void)state;
    assert_true(count_failures(many) >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rendered),      cmocka_unit_test(test_refused_at_load),
        cmocka_unit_test(test_bounds),        cmocka_unit_test(test_refused_as_it_runs),
        cmocka_unit_test(test_long_template), cmocka_unit_test(test_marks),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_date),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, ctx_setup, ctx_teardown);
}
