"""Compiles the advisor's code in Go and Java, together with declarations of the variables that the code leaves to the application.

Fragments may leave a variable unused. All other complaints of the compilers are errors.
"""

import itertools
import pathlib
import re
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
JARS = HERE.parent.parent / ".cache/java-cluster"
REDISSON = HERE.parent.parent / ".cache/redisson"
# Types of the application's variables; all others are strings.
NUMBERS = {"n", "n2", "offset", "bit", "start", "stop", "index", "count", "cursor", "amount", "min", "max", "database", "timestamp"}
TIMES = {"seconds", "milliseconds"}
FRACTIONS = {"score", "longitude", "latitude", "radius"}
TEXTS = {
    "word", "uuid", "item", "value", "field", "member", "message", "pattern", "destination", "source", "target", "other", "entry",
    "pivot", "element", "argument", "group", "script", "sha", "procedure", "consumer", "stream", "lastID", "lastId", "text",
}  # fmt: skip
NAMES = NUMBERS | TIMES | FRACTIONS | TEXTS
# Types that a command demands: (language, command, variable).
DEMANDED = {
    ("Go", "ZINCRBY", "amount"): "float64", ("Go", "ZADD", "amount"): "float64", ("Go", "HINCRBYFLOAT", "amount"): "float64", ("Go", "INCRBYFLOAT", "amount"): "float64",
    ("Go", "ZCOUNT", "min"): "string", ("Go", "ZCOUNT", "max"): "string", ("Go", "SETBIT", "bit"): "int",
    ("Java", "XLEN", "lastId"): "StreamEntryID", ("Java", "XREAD", "lastId"): "StreamEntryID", ("Java", "SETBIT", "bit"): "boolean", ("Java", "ZINCRBY", "amount"): "double", ("Java", "INCRBYFLOAT", "amount"): "double",
    ("Java", "HINCRBYFLOAT", "amount"): "double",
    ("Java with Spring Data Redis", "SETBIT", "bit"): "boolean", ("Java with Spring Data Redis", "ZINCRBY", "amount"): "double",
    ("Java with Spring Data Redis", "INCRBYFLOAT", "amount"): "double", ("Java with Spring Data Redis", "HINCRBYFLOAT", "amount"): "double",
    ("Java with Redisson", "XLEN", "lastId"): "StreamMessageId",
    ("Java with Lettuce", "SETBIT", "bit"): "int", ("Java with Lettuce", "BITPOS", "bit"): "boolean", ("Java with Lettuce", "MOVE", "database"): "int",
}  # fmt: skip
TYPES = {
    "Go": ("int64", "float64", "time.Duration", "string"), "Go with Redigo": ("int64", "float64", "int64", "string"), "Java": ("long", "double", "long", "String"),
    "Java with Redisson": ("int", "double", "long", "String"),
}
# Each library of Go: its package, and the application's objects.
GO = {
    "Go": (
        "github.com/redis/go-redis/v9",
        """	rdb                   *redis.Client
	options               *redis.Options
	pairs                 []redis.Z
	locations             []*redis.GeoLocation
""",
    ),
    "Go with Redigo": (
        "github.com/gomodule/redigo/redis",
        """	conn                  redis.Conn
	options               []any
	url                   string
""",
    ),
}
# Each library of Java: its imports, the application's objects, and the object that a snippet may declare.
JAVA = {
    "Java": (
        """import redis.clients.jedis.*;
import redis.clients.jedis.args.*;
import redis.clients.jedis.params.*;
import redis.clients.jedis.resps.*;
""",
        """static SetParams options;
static Map<String, Double> scores;
static Map<String, GeoCoordinate> coordinates;
static JedisPubSub listener;
""",
        ("RedisClient", "jedis"),
        "StreamEntryID[]",
    ),
    "Java with Lettuce": (
        """import io.lettuce.core.*;
import io.lettuce.core.XReadArgs.StreamOffset;
import io.lettuce.core.api.*;
import io.lettuce.core.api.sync.*;
import io.lettuce.core.codec.*;
import io.lettuce.core.output.*;
import io.lettuce.core.protocol.*;
import io.lettuce.core.pubsub.*;
import java.time.Duration;
""",
        """static StatefulRedisConnection<String, String> connection;
static StatefulRedisPubSubConnection<String, String> pubsub;
static RedisPubSubListener<String, String> listener;
static SetArgs options;
static ScoredValue<String>[] scores;
static GeoValue<String>[] places;
""",
        ("RedisCommands<String, String>", "redis"),
        "String[]",
    ),
    "Java with Spring Data Redis": (
        """import java.time.Duration;
import org.springframework.data.geo.*;
import org.springframework.data.redis.connection.*;
import org.springframework.data.redis.connection.RedisListCommands.Direction;
import org.springframework.data.redis.connection.lettuce.*;
import org.springframework.data.redis.connection.stream.*;
import org.springframework.data.redis.connection.stream.Consumer;
import org.springframework.data.redis.core.*;
import org.springframework.data.redis.core.script.*;
import org.springframework.data.redis.core.types.*;
import org.springframework.data.redis.listener.*;
""",
        """static final String host = "localhost";
static final int port = 6379;
static Expiration expiration;
static ReturnType returnType;
static Class<?> resultType;
static Map<String, Point> places;
static Set<ZSetOperations.TypedTuple<String>> scores;
static RedisMessageListenerContainer listeners;
static MessageListener listener;
""",
        ("StringRedisTemplate", "redis"),
        "String[]",
    ),
    "Java with Redisson": (
        """import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.api.queue.*;
import org.redisson.api.stream.*;
import org.redisson.client.codec.*;
import org.redisson.config.*;
""",
        """static Config config;
static Duration timeToLive;
static GeoEntry[] places;
static Map<String, Double> scores;
static void changed() {}
""",
        ("RedissonClient", "redisson"),
        "StreamMessageId[]",
    ),
}


def type_of(language, commands, name):
    """The type of a variable of the application."""
    for command in commands:
        if (language, command, name) in DEMANDED:
            return DEMANDED[language, command, name]
    number, fraction, time, text = TYPES.get(language) or TYPES[language.split()[0]]
    return number if name in NUMBERS else fraction if name in FRACTIONS else time if name in TIMES else text


def errors_at(pattern, said, starts):
    """The compiler's complaints by the index of the snippet, found by their lines."""
    found = {}
    for line, text in re.findall(pattern, said, re.M):
        index = max((at for at, start in enumerate(starts) if start <= int(line)), default=0)
        found.setdefault(index, text)
    return [found.get(index) for index in range(len(starts))]


def assemble(head, functions, tail):
    """The source of all functions, and the line at which each begins."""
    source, starts = head, []
    for function in functions:
        starts.append(source.count("\n") + 1)
        source += function
    return source + tail, starts


def go_source(language, snippets):
    """A program with the snippets of a library, and the line at which each begins."""
    package, objects = GO[language]
    fields = itertools.chain.from_iterable(re.findall(r"\bitem\.(\w+)", snippet["code"]) for snippet in snippets)
    plain = {field[0].lower() + field[1:]: field for field in fields}

    def function(index, snippet):
        code, commands = snippet["code"], snippet["commands"]
        lists = {name: variable for variable, name in re.findall(r"for _, (\w+) := range (\w+) ", code)}
        if "slices.Chunk(all" in code:
            lists["all"] = lists.pop("items", "item")
        elements = {name: "Item" if variable == "item" else type_of(language, commands, variable) for name, variable in lists.items()}
        item = "".join(f"{field} {type_of(language, commands, name)}; " for name, field in sorted(plain.items()))
        values = "".join(f"var {name} {type_of(language, commands, name)}; _ = {name}\n" for name in sorted(NAMES - {"item"}))
        elements["members"] = {"HGET": "string", "HDEL": "string", "ZSCORE": "string", "GEOPOS": "string", "ZADD": "redis.Z" if language == "Go" else "any"}.get(commands[0], "any")
        items = "".join(f"var {name} []{element}; _ = {name}\n" for name, element in elements.items())
        # `options` are those of the command, and elsewhere of the connection.
        items += "var options redis.SetArgs; _ = options\n" if "SetArgs(" in code else ""
        return f"func snippet{index}() {{\ntype Item struct {{ {item} }}\n{values}{items}{{\n{code}\n}}\n}}\n"

    head = f"""package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"{package}"
)

var (
	ctx                   = context.Background()
	use                   = fmt.Sprint
	_                     = slices.Max[[]int]
	_                     time.Duration
	fields, keys, entries []string
{objects})

func changed(...any) {{}}

"""
    return assemble(head, [function(index, snippet) for index, snippet in enumerate(snippets)], "func main() {}\n")


def compile_go(snippets):
    """The complaints of the Go compiler about each snippet, of all libraries together."""
    module, errors = HERE.parent / "go", {}
    with tempfile.TemporaryDirectory(dir=module, prefix="snippets-") as directory:
        programs = {}
        for language in GO:
            known = [snippet for snippet in snippets if snippet["language"] == language]
            source, starts = go_source(language, known)
            name = f"s{len(programs)}"
            (pathlib.Path(directory) / name).mkdir()
            (pathlib.Path(directory) / name / "main.go").write_text(source)
            programs[name] = (known, starts)
        build = ["go", "build", "-gcflags=-e", "-o", "/dev/null", f"./{pathlib.Path(directory).name}/..."]
        said = subprocess.run(build, cwd=module, capture_output=True, text=True).stderr
    said = "\n".join(line for line in said.splitlines() if "declared and not used" not in line)
    for name, (known, starts) in programs.items():
        errors |= zip(map(id, known), errors_at(rf"{name}/main\.go:(\d+):\d+: (.*)$", said, starts))
    return [errors[id(snippet)] for snippet in snippets]


def java_source(language, name, snippets):
    """A class with the snippets of a library, and the line at which each begins."""
    imports, objects, (client_type, client), entries = JAVA[language]

    def function(index, snippet):
        code, commands = snippet["code"], snippet["commands"]
        lists = {name: variable for variable, name in re.findall(r"for \(var (\w+) : (\w+)\)", code)}
        if "Lists.partition(all" in code:
            lists["all"] = lists.pop("items", "item")
        for name in set(re.findall(r"\b(items|changes|all)\b", code)) - ({"items"} if "all" in lists else set()):
            lists.setdefault(name, "item" if re.search(rf"{name}\.stream\(\)\.\w+\(item ->", code) else "value")
        boxes = {"long": "Long", "double": "Double", "boolean": "Boolean", "String": "String", "int": "Integer"}
        elements = {name: f"Item{index}" if variable == "item" else boxes[type_of(language, commands, variable)] for name, variable in lists.items()}
        properties = sorted(set(re.findall(r"\bitem\.(\w+)\(\)", code)))
        item = ", ".join(f"{type_of(language, commands, name)} {name}" for name in properties)
        declared = set(re.findall(r"\bvar (\w+)\b", code)) | set(re.findall(r"^\s*[\w<>]+ (\w+)(?: =|;)", code, re.M)) | set(re.findall(r"\b(\w+) ->", code))
        names = sorted(name for name in NAMES - {"item"} - declared if re.search(rf"\b{name}\b", code))
        parameters = [f"{type_of(language, commands, name)} {name}" for name in names]
        parameters += [f"List<{element}> {name}" for name, element in elements.items() if name not in declared]
        fields = "Map<String, String>" if commands[0] in ("HSET", "XADD") and "hmget" not in code and "hdel" not in code else "String[]"
        parameters += [f"{fields} fields"] if re.search(r"\bfields\b", code) and "fields" not in declared else []
        parameters += [f"{entries} entries"] if re.search(r"\bentries\b", code) and "entries" not in declared else []
        if client not in declared:
            parameters.append(f"{client_type} {client}")
        return f"record Item{index}({item}) {{}}\nstatic void snippet{index}({', '.join(parameters)}) throws Exception {{\n{code}\n}}\n"

    head = f"""import java.net.URI;
import java.util.*;
import java.util.stream.*;
{imports}
class {name} {{
static final String URL = "redis://localhost", SCRIPT = "return 1";
static String[] members, keys;
{objects}static void use(Object value) {{}}
/** Guava's. */
static class Lists {{
static <T> List<List<T>> partition(List<T> list, int size) {{ return List.of(list); }}
}}
"""
    return assemble(head, [function(index, snippet) for index, snippet in enumerate(snippets)], "}\n")


def compile_java(snippets):
    """The complaints of the Java compiler about each snippet, of all libraries together."""
    starts, of = {}, {language: [snippet for snippet in snippets if snippet["language"] == language] for language in JAVA}
    with tempfile.TemporaryDirectory() as directory:
        for language in JAVA:
            name = f"Snippets{len(starts)}"
            source, lines = java_source(language, name, of[language])
            (pathlib.Path(directory) / f"{name}.java").write_text(source)
            starts[name] = lines
        jars = f"{JARS}/*:{REDISSON}/*"
        build = ["javac", "-Xmaxerrs", "10000", "-proc:none", "-cp", jars, "-d", directory, *pathlib.Path(directory).glob("*.java")]
        said = subprocess.run(build, capture_output=True, text=True).stderr
    # The name of an unknown symbol is in another line.
    said = re.sub(r"(error: cannot find symbol)\n.*\n.*\n\s*symbol: *(.*)", r"\1 \2", said)
    errors = {}
    for (name, lines), known in zip(starts.items(), of.values()):
        errors |= zip(map(id, known), errors_at(rf"{name}\.java:(\d+): error: (.*)$", said, lines))
    return [errors[id(snippet)] for snippet in snippets]
