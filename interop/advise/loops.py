"""The loops behind the advisor's suggestions: values for variables, data to begin with, and the data that a loop leaves.

A loop goes round three times. Its variables have other values each time, unless a command needs the same value.
"""

import hashlib
import re

ROUNDS = 3
# A script that counts.
SCRIPT = "return redis.call('INCRBY', KEYS[1], ARGV[1] or 1)"
COUNTS = "return redis.call('INCRBY', KEYS[1], 3)"
# A script that only reads, and a function.
READS = "return redis.call('GET', KEYS[1])"
FUNCTION = """#!lua name=tests
redis.register_function{function_name='procedure', callback=function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}}"""
# Values of variables that are single, and of the first round.
VALUES = {
    "n": 7, "n2": 8, "word": "w", "uuid": "u-1", "item": "i", "value": "5", "field": "f", "member": "m", "score": 1.5, "amount": 2,
    "offset": 0, "bit": 1, "start": 0, "stop": 1, "index": 0, "seconds": 60, "milliseconds": 60000, "timestamp": 2000000000, "count": 1,
    "min": 0, "max": 9, "message": "hello", "pattern": "*", "cursor": 0, "destination": "destination", "source": "source",
    "target": "target", "other": "other", "longitude": 13.4, "latitude": 52.5, "entry": "1-1", "pivot": "p", "element": "e",
    "database": 1, "argument": "a", "group": "group", "script": COUNTS, "sha": hashlib.sha1(COUNTS.encode()).hexdigest(),
    "procedure": "procedure", "consumer": "me", "stream": "stream", "radius": 100, "last_id": "0", "lastId": "0", "lastID": "0",
    "SCRIPT": SCRIPT, "text": SCRIPT,
}  # fmt: skip
# Variables that grow by one each round, and texts that get the round's number.
GROWING = {"n", "n2", "score", "amount", "offset", "longitude", "latitude"}
VARYING = {"word", "uuid", "field", "member", "message", "element", "argument"}
HOLES = re.compile("<(n|date|uuid|hash|id|word|binary)>")
# The commands that a client sends after its question has found something.
TAKES = {"LLEN": "LPOP", "SET WITH OPTIONS": "LPOP"}
POPS = {"LPOP", "RPOP", "LMOVE", "LMPOP", "ZPOPMIN", "ZPOPMAX", "ZMPOP"}
# Pairs that one command replaces by an increment.
INCREMENTS = {("GET", "SET"), ("HGET", "HSET"), ("ZSCORE", "ZADD")}
# Commands that fail on any server here, so that no second stage follows.
FAILS = {"RESTORE", "JSON.GET", "JSON.SET"}
# Commands whose keys begin with one element, so that the others are new.
ADDS = {"SADD", "RPUSH", "LPUSH", "ZADD", "HSET", "HMSET", "HSETNX", "GEOADD", "ZINCRBY", "HINCRBY", "HINCRBYFLOAT"}
SETS = {"SADD", "SREM", "SPOP", "SCARD", "SMEMBERS", "SISMEMBER", "SMISMEMBER", "SSCAN", "SRANDMEMBER", "SMOVE"}
# All data as text. The ids that the server chose, and times to live, differ.
SNAPSHOT = """
local lines = {}
local function sorted(all, width)
  local parts = {}
  for at = 1, #all, width do
    parts[#parts + 1] = table.concat(all, '=', at, at + width - 1)
  end
  table.sort(parts)
  return table.concat(parts, ' ')
end
local keys = redis.call('KEYS', '*')
table.sort(keys)
for _, key in ipairs(keys) do
  local type, value = redis.call('TYPE', key).ok, ''
  if type == 'string' then
    value = redis.call('GET', key)
  elseif type == 'list' then
    value = table.concat(redis.call('LRANGE', key, 0, -1), ' ')
  elseif type == 'hash' then
    value = sorted(redis.call('HGETALL', key), 2)
  elseif type == 'set' then
    value = sorted(redis.call('SMEMBERS', key), 1)
  elseif type == 'zset' then
    value = table.concat(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), ' ')
  elseif type == 'stream' then
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do
      value = value .. (#entry[1] < 6 and entry[1] or '*') .. ' ' .. table.concat(entry[2], '=') .. ' '
    end
    for _, group in ipairs(redis.call('XINFO', 'GROUPS', key)) do
      value = value .. 'pending ' .. group[6] .. ' '
    end
  end
  local lives = redis.call('TTL', key) >= 0 and ' (expires)' or ''
  lines[#lines + 1] = key .. lives .. ' ' .. type .. ' ' .. value
end
return (table.concat(lines, '\\n'):gsub('[^%w%p \\n]', function(byte) return string.format('<%02x>', byte:byte()) end))
"""


def value(name, number):
    """The value of a variable in a round."""
    first = VALUES.get(name, "x")
    if name in GROWING:
        return first + number
    if name == "value":
        return str(5 + number)
    if name == "entry":
        return f"{number + 1}-1"
    return f"{first}{number}" if name in VARYING and number else first


def key(pattern, number):
    """The key of a pattern in a round."""
    seen = {}

    def filled(hole):
        name = hole[1]
        seen[name] = seen.get(name, 0) + 1
        return str(value(name if seen[name] == 1 else f"{name}{seen[name]}", number))

    return HOLES.sub(filled, pattern.replace('\\"', '"'))


def is_variable(word):
    return len(word) > 1 and word.isalpha() and word.islower() and word != "km"


def variables(step):
    return [word for word in step["arguments"].split() if is_variable(word)]


def scripts_of(commands):
    """The script and its hash for these commands."""
    text = READS if any(command.endswith("_RO") for command in commands) else COUNTS
    return {"script": text, "sha": hashlib.sha1(text.encode()).hexdigest()}


def command(step, number, computed=None):
    """A command of a round. `computed` stands for its value."""
    scripts = scripts_of([step["command"]])
    words = [step["command"].split()[0]]
    for word in step["arguments"].split():
        if word == "KEY":
            words.append(key(step["pattern"], number))
        elif word == "fields":
            words.append("f")
        elif word in scripts:
            words.append(scripts[word])
        elif word in ("value", "message") and computed is not None:
            words.append(computed)
        else:
            words.append(str(value(word, number)) if is_variable(word) else word)
    return [*words, "EX", "60"] if step["command"] == "SET WITH OPTIONS" else words


def members(snippet):
    """The members, fields or values of one command that replaces a loop."""
    names = [name for name in variables(snippet["steps"][0]) if name != "group"] or ["member"]
    return [value(names[0], number) for number in range(ROUNDS)]


def amount(snippet):
    """The amount of an increment that replaces a loop's."""
    if "the sum of the loop's increments" not in snippet["code"]:
        return VALUES["amount"]
    return ROUNDS if snippet["commands"][0] in ("INCR", "DECR") else sum(value("amount", number) for number in range(ROUNDS))


def stream_of(snippet):
    patterns = [step["pattern"] for step in snippet["steps"] if step["pattern"]]
    return key(patterns[0], 0) if patterns else VALUES["stream"]


def filled(name, of, rounds):
    """The command that fills a key for a command, or none."""
    numbers = range(rounds)
    if name.startswith("X") and name != "XADD":
        return None
    if name.startswith("H"):
        return ["HSET", of, *(word for number in numbers for word in (value("field", number), value("value", number)))]
    if name.startswith("Z"):
        return ["ZADD", of, *(str(word) for number in numbers for word in (value("score", number), value("member", number)))]
    if name.startswith("GEO"):
        return ["GEOADD", of, *(str(value(word, number)) for number in numbers for word in ("longitude", "latitude", "member"))]
    if name in SETS or name.startswith(("SINTER", "SUNION", "SDIFF")):
        return ["SADD", of, *(value("member", number) for number in numbers)]
    if name.startswith("L") or name in ("RPUSH", "RPOP", "RPUSHX", "RPOPLPUSH", "SORT", "SORT_RO"):
        return ["RPUSH", of, *(value("value", number) for number in numbers), *[VALUES["pivot"]] * (name == "LINSERT")]
    if name.startswith("PF"):
        return ["PFADD", of, "e"]
    return None if name in ("XADD", "RESTORE", "SETNX", "MSETNX") else ["SET", of, VALUES["value"]]


def seed(snippet):
    """The commands that make the data to begin with."""
    step, kind = snippet["steps"][0], snippet["kind"]
    name = step["command"].split()[0]
    name = TAKES.get(step["command"], name) if kind == "polling" else name
    commands = [["UNWATCH"], ["FLUSHALL"], ["CONFIG", "SET", "notify-keyspace-events", "KA"]]
    commands += [["SCRIPT", "LOAD", COUNTS], ["SCRIPT", "LOAD", READS], ["FUNCTION", "LOAD", "REPLACE", FUNCTION]]
    keys = dict.fromkeys(key(step["pattern"], number) for number in range(ROUNDS)) if step["pattern"] else {}
    if name == "XREADGROUP":
        keys = {stream_of(snippet): None}
    for at in keys:
        if name.startswith("X") and name != "XADD":
            commands += [["XADD", at, f"{number + 1}-1", "f", "v"] for number in range(ROUNDS)]
            commands.append(["XGROUP", "CREATE", at, "group", "0"])
            commands += [] if name == "XREADGROUP" else [["XREADGROUP", "GROUP", "group", "me", "STREAMS", at, ">"]]
        # Chance must not decide which members are left.
        rounds = 1 if name in ADDS or name == "SPOP" and len(keys) > 1 else ROUNDS
        commands += filter(None, [filled(name, at, rounds)])
    others = {"source", "other"} & set(variables(step))
    return commands + [filled(name, VALUES[other], 2) for other in sorted(others)]


def pair(client, snippet):
    """A read, and a write of what was read."""
    read, write = snippet["steps"]
    reply = client.execute_command(*command(read, 0))
    if (read["command"], write["command"]) in INCREMENTS:
        more = VALUES["amount"]
        written = dict.fromkeys(("value", "score"), str(float(reply) + more if write["command"] == "ZADD" else int(reply) + more))
        words = [written.get(word, word) for word in write["arguments"].split()]
        return [command(write | {"arguments": " ".join(words)}, 0)]
    if {"value", "message"} & set(variables(write)):
        return [command(write, 0, f"{reply:g}" if isinstance(reply, float) else reply)] if isinstance(reply, str | int | float) else []
    return [command(write, 0)]


def loop(client, snippet):
    """The commands of the wasteful loop."""
    kind, steps = snippet["kind"], snippet["steps"]
    first = steps[0]
    if kind in ("repeated-read", "heavy-command", "redirected-commands"):
        return []
    if kind == "polling" and first["command"] == "XREADGROUP":
        return [["XREADGROUP", "GROUP", "group", "me", "STREAMS", stream_of(snippet), ">"]]
    if kind == "polling":
        taken = TAKES.get(first["command"], first["command"])
        return [[taken, *command(first, 0)[1:]][: 2 if taken == "LPOP" else None]] if taken in POPS else []
    if kind in ("script-in-full", "changing-script"):
        value_of = [VALUES["value"]] if kind == "changing-script" else []
        return [["EVAL", SCRIPT, "1", key(first["pattern"], 0), *value_of]]
    if kind == "read-compute-write":
        return pair(client, snippet)
    if snippet["commands"][0] == "XREADGROUP":
        at = stream_of(snippet)
        reads = [["XREADGROUP", "GROUP", "group", "me", "COUNT", "1", "STREAMS", at, ">"]]
        return [words for number in range(ROUNDS) for words in [*reads, ["XACK", at, "group", f"{number + 1}-1"]]]
    if kind in ("transaction-in-slices", "connection-per-command"):
        return [command(first, 0)]
    return [command(step, number) for number in range(ROUNDS) for step in steps]


def run(client, commands, failure):
    """Sends commands one by one. Errors are part of the data's story: `failure` is their class."""
    for words in commands:
        try:
            client.execute_command(*words)
        except failure:
            pass


def left_by_loop(client, snippet, failure):
    """The data that the loop leaves."""
    run(client, seed(snippet), failure)
    run(client, loop(client, snippet), failure)
    return client.execute_command("EVAL", SNAPSHOT, "0")


def is_compared(snippet):
    """False for calls of frameworks, which wrap their values, for code that waits for a change, and for stages that fail."""
    is_framework = "cache." in snippet["code"] or "perform_bulk" in snippet["code"]
    stops = snippet["kind"] == "interleaved-loop" and snippet["commands"][0] in FAILS
    return not (is_framework or stops or waits_for_change(snippet))


def waits_for_change(snippet):
    return "__keyspace@" in snippet["code"]


def needs_cluster(snippet):
    return snippet["kind"] == "redirected-commands"


def is_only_compiled(snippet):
    """True for code that the programs in Go and Java don't run."""
    return waits_for_change(snippet) or needs_cluster(snippet)
