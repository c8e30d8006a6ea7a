"""Compiles and runs the advisor's code in Go and Java: each library has one program with all its snippets as functions.

The functions declare the variables that the code leaves to the application. Before each snippet the program makes the data to begin
with, and after it the program tells which data there are.
"""

import itertools
import json
import pathlib
import re
import subprocess
import tempfile

import loops

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
    ("Java", "XLEN", "lastId"): "StreamEntryID", ("Java", "XREAD", "lastId"): "StreamEntryID", ("Java", "ZINCRBY", "amount"): "double", ("Java", "INCRBYFLOAT", "amount"): "double",
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
        """
var (
	options   = addressed()
	rdb       = redis.NewClient(options)
	locations []*redis.GeoLocation
)

func addressed() *redis.Options {
	options, err := redis.ParseURL(os.Args[1])
	if err != nil {
		panic(err)
	}
	return options
}

func send(words []any) any {
	reply, _ := rdb.Do(ctx, words...).Result()
	return reply
}

func init() {
	for _, place := range places {
		locations = append(locations, &redis.GeoLocation{Name: place.name, Longitude: place.longitude, Latitude: place.latitude})
	}
}
""",
    ),
    "Go with Redigo": (
        "github.com/gomodule/redigo/redis",
        """
var (
	url     = os.Args[1]
	conn, _ = redis.DialURL(url)
	options = []any{"EX", 60}
)

func send(words []any) any {
	reply, _ := conn.Do(words[0].(string), words[1:]...)
	if text, ok := reply.([]byte); ok {
		return string(text)
	}
	return reply
}
""",
    ),
}
# Each library of Java: its imports, the application's objects, the type of a stream's entries, and the directory of its archives.
JAVA = {
    "Java": (
        """import redis.clients.jedis.*;
import redis.clients.jedis.args.*;
import redis.clients.jedis.params.*;
import redis.clients.jedis.resps.*;
""",
        """static final String host = URI.create(URL).getHost();
static final int port = URI.create(URL).getPort();
static RedisClient jedis = RedisClient.create(URL);
static SetParams options = SetParams.setParams().ex(60);
static Map<String, Double> scores = scores();
static Map<String, GeoCoordinate> coordinates = PLACES.stream().collect(Collectors.toMap(Place::name, place -> new GeoCoordinate(place.longitude(), place.latitude())));
static JedisPubSub listener;
""",
        "StreamEntryID",
        JARS,
    ),
    "Java with Lettuce": (
        """import io.lettuce.core.*;
import io.lettuce.core.XReadArgs.StreamOffset;
import io.lettuce.core.api.*;
import io.lettuce.core.api.sync.*;
import io.lettuce.core.cluster.*;
import io.lettuce.core.codec.*;
import io.lettuce.core.output.*;
import io.lettuce.core.protocol.*;
import io.lettuce.core.pubsub.*;
import java.time.Duration;
""",
        """static StatefulRedisConnection<String, String> connection = RedisClient.create(URL).connect();
static RedisCommands<String, String> redis = connection.sync();
static StatefulRedisPubSubConnection<String, String> pubsub;
static RedisPubSubListener<String, String> listener;
static SetArgs options = SetArgs.Builder.ex(60);
@SuppressWarnings("unchecked")
static ScoredValue<String>[] scores = scores().entrySet().stream().map(entry -> ScoredValue.just(entry.getValue(), entry.getKey())).toArray(ScoredValue[]::new);
@SuppressWarnings("unchecked")
static GeoValue<String>[] places = PLACES.stream().map(place -> GeoValue.just(place.longitude(), place.latitude(), place.name())).toArray(GeoValue[]::new);
""",
        "String",
        JARS,
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
        """static final String host = URI.create(URL).getHost();
static final int port = URI.create(URL).getPort();
static StringRedisTemplate redis = template();
static Expiration expiration = Expiration.seconds(60);
static ReturnType returnType = ReturnType.INTEGER;
static Map<String, Point> places = PLACES.stream().collect(Collectors.toMap(Place::name, place -> new Point(place.longitude(), place.latitude())));
static Set<ZSetOperations.TypedTuple<String>> scores = scores().entrySet().stream().map(entry -> ZSetOperations.TypedTuple.of(entry.getKey(), entry.getValue())).collect(Collectors.toSet());
static RedisMessageListenerContainer listeners;
static MessageListener listener;
static StringRedisTemplate template() {
var factory = new LettuceConnectionFactory(host, port);
factory.start();
return new StringRedisTemplate(factory);
}
""",
        "String",
        JARS,
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
        """static Config config = config();
static RedissonClient redisson = Redisson.create(config);
static Duration timeToLive = Duration.ofMinutes(1);
static GeoEntry[] places = PLACES.stream().map(place -> new GeoEntry(place.longitude(), place.latitude(), place.name())).toArray(GeoEntry[]::new);
static Map<String, Double> scores = scores();
static void changed() {}
static Config config() {
var config = new Config();
config.setCodec(StringCodec.INSTANCE);
config.useSingleServer().setAddress(URL).setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
return config;
}
""",
        "StreamMessageId",
        REDISSON,
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


def literal(language, type_name, value):
    """The value of a variable in the language's syntax."""
    if type_name in ("string", "String", "any"):
        return json.dumps(str(value))
    if type_name in ("boolean", "bool"):
        return "true" if value else "false"
    if type_name == "StreamEntryID":
        return f'new StreamEntryID("{value if "-" in str(value) else f"{value}-0"}")'
    if type_name == "StreamMessageId":
        first, _, second = str(value).partition("-")
        return f"new StreamMessageId({first}, {second or 0})"
    if type_name == "redis.Z":
        return "redis.Z{Score: %s, Member: %s}" % (value[0], json.dumps(value[1]))
    if type_name in ("double", "float64"):
        return f"{float(value)}"
    return f"{value}L" if type_name == "long" else f"{value}"


def element(language, type_name, names, number, commands):
    """An element of a list, in a round: a record with these fields, or a value."""
    values = [loops.value(name, number) for name in names]
    literals = [literal(language, type_of(language, commands, name), value) for name, value in zip(names, values)]
    if not type_name.startswith("Item"):
        return literals[0]
    if language.startswith("Go"):
        return "{" + ", ".join(f"{name[0].upper() + name[1:]}: {text}" for name, text in zip(names, literals)) + "}"
    return f"new {type_name}({', '.join(literals)})"


def records(language, type_name, names, commands):
    """All elements of a list."""
    return ", ".join(element(language, type_name, names, number, commands) for number in range(loops.ROUNDS))


def places():
    return [[loops.value(name, number) for name in ("longitude", "latitude", "member")] for number in range(loops.ROUNDS)]


def go_members(language, snippet):
    """The declaration of the members, fields or values of a command."""
    command, values = snippet["commands"][0], snippet["lists"]["members"]
    kind = {"HGET": "string", "HDEL": "string", "ZSCORE": "string", "GEOPOS": "string", "ZADD": "redis.Z" if language == "Go" else "any"}.get(command, "any")
    if kind == "redis.Z":
        values = [(loops.value("score", number), loops.value("member", number)) for number in range(loops.ROUNDS)]
    return f"members := []{kind}{{{', '.join(literal(language, kind, value) for value in values)}}}; _ = members\n"


def go_function(language, index, snippet):
    """A snippet as a function."""
    code, commands = snippet["code"], snippet["commands"]
    lists = {name: variable for variable, name in re.findall(r"for _, (\w+) := range (\w+) ", code)}
    if "slices.Chunk(all" in code:
        lists["all"] = lists.pop("items", "item")
    lists = {name: variable for name, variable in lists.items() if name in ("items", "changes", "all")}
    fields = {field[0].lower() + field[1:]: None for field in re.findall(r"\bitem\.(\w+)", code)}
    item = "".join(f"{field[0].upper() + field[1:]} {type_of(language, commands, field)}; " for field in fields)
    text = f"func snippet{index}() {{\ntype Item struct {{ {item} }}\n"
    for name in sorted(NAMES - {"item", "_"}):
        kind = type_of(language, commands, name)
        text += f"var {name} {kind} = {literal(language, kind, snippet['values'][name])}; _ = {name}\n"
    for name, variable in lists.items():
        kind, names = ("Item", list(fields)) if variable in ("item", "_") else (type_of(language, commands, variable), [variable])
        text += f"{name} := []{kind}{{{records(language, kind, names, commands)}}}; _ = {name}\n"
    text += go_members(language, snippet)
    mapped = ", ".join(f"{json.dumps(word)}" for pair in snippet["map"].items() for word in pair)
    is_mapped = commands[0] in ("HSET", "HMSET") and "HMGET" not in code
    text += f"fields := []string{{{mapped if is_mapped else json.dumps('f')}}}; _ = fields\n"
    text += 'entries := []string{"1-1", "2-1", "3-1"}; _ = entries\n'
    # `options` are those of the command, and elsewhere of the connection.
    text += "var options = redis.SetArgs{TTL: time.Minute}; _ = options\n" if "SetArgs(" in code else ""
    declared = re.findall(r"^(?:var )?(\w+(?:, \w+)*)(?: :=| = redis.NewScript| \[\]\w+$| redis.Args$)", code, re.M)
    names = dict.fromkeys(name for names in declared for name in names.split(", ") if name != "_")
    used = "".join(f"note({name})\n" if name == "err" else f"_ = {name}\n" for name in names)
    # A loop may leave its variable unused, and so may a chunk its error.
    code = re.sub(r"^(\s*)(for _, (\w+) := range .*\{)$", r"\1\2\n\1_ = \3", code, flags=re.M)
    code = re.sub(r"^(  _, err := (?:rdb|conn).*(?:\n    .*|\n  \}\))*)", r"\1\n  note(err)", code, flags=re.M) if "slices.Chunk" in code else code
    return f"{text}{{\n{code}\n{used}}}\n}}\n"


def go_source(language, snippets):
    """A program with the snippets of a library, and the line at which each begins."""
    package, objects = GO[language]
    of_places = "".join(f"{{{longitude}, {latitude}, {json.dumps(name)}}}, " for longitude, latitude, name in places())
    head = f"""package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"{package}"
)

var (
	ctx    = context.Background()
	use    = fmt.Sprint
	_      = slices.Max[[]int]
	_      time.Duration
	failed string
	places = []struct {{
		longitude, latitude float64
		name                string
	}}{{ {of_places} }}
)
{objects}
func changed(...any) {{}}

func note(err error) {{
	if err != nil && err.Error() != "redis: nil" && err.Error() != "redigo: nil returned" {{
		failed = err.Error()
	}}
}}

"""
    functions = [go_function(language, index, snippet) for index, snippet in enumerate(snippets)]
    # A connection of a pool keeps its watch, and would spoil a later transaction.
    is_run = [not loops.is_only_compiled(snippet) and "WATCH" not in snippet["commands"] for snippet in snippets]
    names = ", ".join(f"snippet{index}" if runs else "nil" for index, runs in enumerate(is_run))
    tail = f"""
func main() {{
	var input struct {{
		Snapshot string
		Seeds    [][][]any
	}}
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {{
		panic(err)
	}}
	outcomes := [][]any{{}}
	for index, snippet := range []func(){{ {names} }} {{
		if snippet == nil {{
			outcomes = append(outcomes, []any{{"", nil}})
			continue
		}}
		for _, words := range input.Seeds[index] {{
			send(words)
		}}
		failed = ""
		snippet()
		outcomes = append(outcomes, []any{{failed, send([]any{{"EVAL", input.Snapshot, "0"}})}})
	}}
	json.NewEncoder(os.Stdout).Encode(outcomes)
}}
"""
    return assemble(head, functions, tail)


def ran(command, snippets):
    """Runs a compiled program. Returns an error, or None, and the data left, for each snippet."""
    values = json.dumps({"Snapshot": loops.SNAPSHOT, "Seeds": [snippet["seed"] for snippet in snippets]})
    done = subprocess.run(command, input=values, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stderr[-3000:]}")
    return [(error or None, left) for error, left in json.loads(done.stdout)]


def run_go(snippets, url):
    """Compiles and runs the snippets of all libraries of Go."""
    module, outcomes = HERE.parent / "go", {}
    with tempfile.TemporaryDirectory(dir=module, prefix="snippets-") as name:
        directory, programs = pathlib.Path(name), {}
        for language in GO:
            known = [snippet for snippet in snippets if snippet["language"] == language]
            source, starts = go_source(language, known)
            program = f"s{len(programs)}"
            (directory / program).mkdir()
            (directory / program / "main.go").write_text(source)
            programs[program] = (known, starts)
        build = ["go", "build", "-gcflags=-e", "-o", f"{directory}/bin/", f"./{directory.name}/..."]
        made = subprocess.run(build, cwd=module, capture_output=True, text=True)
        for program, (known, starts) in programs.items():
            errors = errors_at(rf"{program}/main\.go:(\d+):\d+: (.*)$", made.stderr, starts)
            outcome = [(error, None) for error in errors] if made.returncode else ran([directory / "bin" / program, url], known)
            outcomes |= zip(map(id, known), outcome)
    if made.returncode and not any(error for error, _ in outcomes.values()):
        raise SystemExit(f"go build failed:\n{made.stderr[-3000:]}")
    return [outcomes[id(snippet)] for snippet in snippets]


def java_variables(language, index, snippet):
    """The declarations of a snippet's variables, and of its record."""
    code, commands, entry_type = snippet["code"], snippet["commands"], JAVA[language][2]
    lists = {name: variable for variable, name in re.findall(r"for \(var (\w+) : (\w+)\)", code)}
    if "Lists.partition(all" in code:
        lists["all"] = lists.pop("items", "item")
    for name in set(re.findall(r"\b(items|changes|all)\b", code)) - ({"items"} if "all" in lists else set()):
        lists.setdefault(name, "item" if re.search(rf"{name}\.stream\(\)\.\w+\(item ->", code) else bound_by(code, name))
    properties = list(dict.fromkeys(re.findall(r"\bitem\.(\w+)\(\)", code)))
    item = ", ".join(f"{type_of(language, commands, name)} {name}" for name in properties)
    declared = set(re.findall(r"\bvar (\w+)\b", code)) | set(re.findall(r"^\s*[\w<>]+ (\w+)(?: =|;)", code, re.M)) | set(re.findall(r"\b(\w+) ->", code))
    text = ""
    for name in sorted(name for name in NAMES - {"item"} - declared if re.search(rf"\b{name}\b", code)):
        kind = type_of(language, commands, name)
        text += f"{kind} {name} = {literal(language, kind, snippet['values'][name])};\n"
    boxes = {"long": "Long", "double": "Double", "boolean": "Boolean", "String": "String", "int": "Integer"}
    for name, variable in lists.items():
        if name not in declared:
            is_record = variable == "item"
            kind = f"Item{index}" if is_record else type_of(language, commands, variable)
            elements = records(language, kind, properties if is_record else [variable], commands)
            text += f"List<{kind if is_record else boxes.get(kind, kind)}> {name} = List.of({elements});\n"
    if re.search(r"\bfields\b", code) and "fields" not in declared:
        is_map = commands[0] in ("HSET", "HMSET", "XADD") and "hmget" not in code and "hdel" not in code
        pairs = ", ".join(json.dumps(word) for pair in snippet["map"].items() for word in pair)
        text += f"Map<String, String> fields = Map.of({pairs});\n" if is_map else 'String[] fields = {"f"};\n'
    if re.search(r"\bentries\b", code) and "entries" not in declared:
        ids = ", ".join(literal(language, entry_type, entry) for entry in snippet["lists"]["entries"])
        text += f"{entry_type}[] entries = {{{ids}}};\n"
    if "resultType" in code:
        text += f"Class<?> resultType = {result_type(code)}.class;\n"
    if "members" not in declared:
        members = ", ".join(literal(language, "String", value) for value in snippet["lists"]["members"])
        text += f"String[] members = {{{members}}};\n"
    return text, f"record Item{index}({item}) {{}}\n"


def result_type(code):
    """The class of a script's reply."""
    last = re.search(r"return redis\.call\('(\w+)'", code)
    return "String" if last and last[1] in ("SET", "LTRIM") else "Long"


def bound_by(code, name):
    """The variable of a lambda over a list."""
    found = re.search(rf"{name}\.stream\(\)\.\w+\((\w+) ->", code)
    return found[1] if found else "value"


def java_source(language, name, snippets):
    """A class with the snippets of a library, and the line at which each begins."""
    imports, objects, _, _ = JAVA[language]

    def function(index, snippet):
        variables, record = java_variables(language, index, snippet)
        return f"{record}static void snippet{index}() throws Exception {{\n{variables}{{\n{snippet['code']}\n}}\n}}\n"

    of_places = ", ".join(f"new Place({longitude}, {latitude}, {json.dumps(name)})" for longitude, latitude, name in places())
    of_scores = ", ".join(f"{json.dumps(loops.value('member', number))}, {loops.value('score', number)}" for number in range(loops.ROUNDS))
    names = ",\n".join("null" if loops.is_only_compiled(snippet) else f"{name}::snippet{index}" for index, snippet in enumerate(snippets))
    head = f"""import java.net.URI;
import java.util.*;
import java.util.stream.*;
{imports}
class {name} {{
record Place(double longitude, double latitude, String name) {{}}
interface Snippet {{ void run() throws Exception; }}
static final String URL = System.getProperty("url"), SCRIPT = {json.dumps(loops.SCRIPT)};
static final List<Place> PLACES = List.of({of_places});
static String[] keys;
{objects}static void use(Object value) {{}}
static Map<String, Double> scores() {{ return Map.of({of_scores}); }}
/** Guava's. */
static class Lists {{
static <T> List<List<T>> partition(List<T> list, int size) {{ return List.of(list); }}
}}
"""
    tail = f"""static class Input {{ String Snapshot; List<List<List<String>>> Seeds; }}
static Object send(redis.clients.jedis.Jedis keeper, List<String> words) {{
try {{
var reply = keeper.sendCommand(() -> words.get(0).getBytes(), words.stream().skip(1).toArray(String[]::new));
return reply instanceof byte[] text ? new String(text) : null;
}} catch (redis.clients.jedis.exceptions.JedisDataException error) {{
return error.getMessage();
}}
}}
/** The whole story of an error, without the data. */
static String told(Throwable error) {{
return error.getCause() == null ? error.toString() : error + " " + told(error.getCause());
}}
public static void main(String[] args) {{
var input = new com.google.gson.Gson().fromJson(new java.io.InputStreamReader(System.in), Input.class);
var keeper = new redis.clients.jedis.Jedis(URI.create(URL));
var outcomes = new ArrayList<String[]>();
Snippet[] all = {{
{names}
}};
for (int index = 0; index < all.length; index++) {{
if (all[index] == null) {{
outcomes.add(new String[2]);
continue;
}}
input.Seeds.get(index).forEach(words -> send(keeper, words));
String failed = null;
try {{
all[index].run();
}} catch (Exception error) {{
failed = told(error);
}}
outcomes.add(new String[] {{failed, (String) send(keeper, List.of("EVAL", input.Snapshot, "0"))}});
}}
System.out.println(new com.google.gson.GsonBuilder().serializeNulls().create().toJson(outcomes));
System.exit(0);
}}
}}
"""
    return assemble(head, [function(index, snippet) for index, snippet in enumerate(snippets)], tail)


def run_java(snippets, url):
    """Compiles and runs the snippets of all libraries of Java."""
    outcomes = {}
    with tempfile.TemporaryDirectory() as name:
        directory, programs = pathlib.Path(name), {}
        for language in JAVA:
            known = [snippet for snippet in snippets if snippet["language"] == language]
            program = f"Snippets{len(programs)}"
            source, lines = java_source(language, program, known)
            (directory / f"{program}.java").write_text(source)
            programs[program] = (language, known, lines)
        build = ["javac", "-Xmaxerrs", "10000", "-proc:none", "-cp", f"{JARS}/*:{REDISSON}/*", "-d", name, *directory.glob("*.java")]
        built = subprocess.run(build, capture_output=True, text=True)
        # The name of an unknown symbol is in another line.
        said = re.sub(r"(error: cannot find symbol)\n.*\n.*\n\s*symbol: *(.*)", r"\1 \2", built.stderr)
        for program, (language, known, lines) in programs.items():
            errors = errors_at(rf"{program}\.java:(\d+): error: (.*)$", said, lines)
            java = ["java", "-XX:TieredStopAtLevel=1", f"-Durl={url}", "-cp", f"{name}:{JAVA[language][3]}/*", program]
            outcome = [(error, None) for error in errors] if built.returncode else ran(java, known)
            outcomes |= zip(map(id, known), outcome)
    if built.returncode and not any(error for error, _ in outcomes.values()):
        raise SystemExit(f"javac failed:\n{built.stderr[-3000:]}")
    return [outcomes[id(snippet)] for snippet in snippets]
