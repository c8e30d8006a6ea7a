// The cluster clients of Jedis and Lettuce, unmodified, through a reshard, a failover and the death of a primary. See ../cluster.py.

import io.lettuce.core.ReadFrom;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.async.RedisAdvancedClusterAsyncCommands;
import io.lettuce.core.cluster.pubsub.StatefulRedisClusterPubSubConnection;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.CommandObjects;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisShardedPubSub;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisRedirectionException;
import redis.clients.jedis.util.JedisClusterCRC16;

public class ClusterTest {
    private static final int KEYS = 200;
    /** Commands of one pipeline. */
    private static final int DEPTH = 2000;
    /** Keys of the slot that moves. */
    private static final int MOVING = 1000;
    private static final int RESHARDS_MAX = 5;
    private static final int PATIENCE_SECONDS = 60;
    private static final String CROSS_SLOT = "CROSSSLOT Keys in request don't hash to the same slot";
    private static final String WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value";
    private static final String SCRIPT = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
    private static final int[] PORTS = Arrays.stream(System.getenv("PENSTOCK_PORTS").split(",")).mapToInt(Integer::parseInt).toArray();
    private static int checks = 0;

    /** A client under test. Commands are SET, INCR, GET and LPUSH. */
    private interface Client extends AutoCloseable {
        Object run(String... command);

        /** Runs the example of docs/cluster.md for this client. */
        List<Long> countVisitsOf(List<String> pages) throws Exception;

        /** Runs commands as a pipeline; an error's text stands in its reply's place. */
        List<Object> pipeline(List<String[]> commands);

        /** Runs commands of one slot as a transaction. */
        List<Object> transaction(List<String[]> commands);

        List<String> mget(String... keys);

        String sunionError(String first, String second);

        Object eval(String key, String argument);

        Object evalsha(String key, String argument);

        void subscribe(String channel, boolean sharded, BlockingQueue<String> heard);

        void publish(String channel, boolean sharded);

        String readFromReplica(String key);

        @Override void close();
    }

    private static void fail(String text) {
        System.out.println(text);
        // Other threads may be blocked.
        Runtime.getRuntime().halt(1);
    }

    private static String excerpt(Object value) {
        String text = String.valueOf(value);
        return text.length() > 400 ? text.substring(0, 400) + "…" : text;
    }

    /** One check: ends the program where {@code actual} is not {@code expected}. */
    private static void check(String what, Object actual, Object expected) {
        checks++;
        if (!Objects.equals(actual, expected)) {
            fail(what + ":\n  expected " + excerpt(expected) + "\n  got      " + excerpt(actual));
        }
    }

    /** Sends a request to the cluster's harness, and returns its answer. */
    private static String event(String request) {
        try (Socket socket = new Socket("127.0.0.1", Integer.parseInt(System.getenv("PENSTOCK_EVENTS")))) {
            socket.getOutputStream().write((request + "\n").getBytes());
            return new BufferedReader(new InputStreamReader(socket.getInputStream())).readLine().strip();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Repeats {@code work} until the event is over. */
    private static void during(String request, Runnable work) {
        CompletableFuture<String> answer = CompletableFuture.supplyAsync(() -> event(request));
        do {
            work.run();
        } while (!answer.isDone());
        check(request, answer.join(), "ok");
    }

    /** Repeats {@code work} until it answers {@code expected}: a shard may have no primary, and a replica may be behind. */
    private static void becomes(String what, Supplier<Object> work, Object expected) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        Object last = null;
        while (System.nanoTime() < deadline) {
            try {
                last = work.get();
                if (expected.equals(last)) {
                    check(what, last, expected);
                    return;
                }
            } catch (RuntimeException e) {
                last = e;
            }
            pause(20);
        }
        fail(what + " did not become " + excerpt(expected) + ": " + excerpt(last));
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** The message of an exception that {@code work} throws; empty where it throws none. */
    private static String thrown(Runnable work) {
        try {
            work.run();
            return "";
        } catch (RuntimeException e) {
            return e.getMessage();
        }
    }

    private static List<String> names(String format, int count) {
        return IntStream.range(0, count).mapToObj(number -> String.format(format, number)).toList();
    }

    /** The commands with each key in the place of {@code KEY}. */
    private static List<String[]> forEach(List<String> keys, String... command) {
        return keys.stream().map(key -> Arrays.stream(command).map(word -> word.replace("KEY", key)).toArray(String[]::new)).toList();
    }

    private static void singleCommands(Client client) {
        for (String key : names("java:%d", KEYS)) {
            check("SET", client.run("SET", key, key), "OK");
        }
        for (String key : names("java:%d", KEYS)) {
            check("GET", client.run("GET", key), key);
        }
    }

    private static void pipelines(Client client) {
        List<String[]> commands = new ArrayList<>();
        List<Object> expected = new ArrayList<>();
        for (String key : names("java:p:%d", DEPTH)) {
            commands.addAll(List.of(new String[] {"SET", key, "7"}, new String[] {"LPUSH", key, "1"}, new String[] {"INCR", key}, new String[] {"GET", key}));
            expected.addAll(List.of("OK", WRONG_TYPE, 8L, "8"));
        }
        check("a pipeline over all slots", client.pipeline(commands), expected);
    }

    private static void oneSlot(Client client) {
        List<String[]> commands = List.of(new String[] {"SET", "{java}a", "1"}, new String[] {"INCR", "{java}a"}, new String[] {"GET", "{java}a"});
        check("MULTI", client.transaction(commands), List.of("OK", 2L, "2"));
        client.run("SET", "{java}b", "3");
        check("MGET", client.mget("{java}b", "{java}a", "{java}none"), Arrays.asList("3", "2", null));
        check("CROSSSLOT", client.sunionError("java:1", "java:2").contains("slot"), true);
    }

    private static void scripts(Client client) {
        for (int number = 0; number < 30; number++) {
            check("EVAL", client.eval("java:s:" + number, "5"), 5L);
            check("EVALSHA", client.evalsha("java:s:" + number, "2"), 7L);
        }
    }

    private static void subscriptions(Client client) {
        List<String> channels = new ArrayList<>(List.of("java:news"));
        channels.addAll(names("java:shard:%d", 6));
        for (String channel : channels) {
            boolean sharded = channel.contains("shard");
            BlockingQueue<String> heard = new LinkedBlockingQueue<>();
            client.subscribe(channel, sharded, heard);
            // A message on the bus before its receiver has subscribed is lost.
            becomes("a message", () -> {
                client.publish(channel, sharded);
                pause(20);
                return heard.poll();
            }, channel + " hello");
        }
    }

    private static void replicas(Client client) {
        for (String key : names("java:%d", KEYS)) {
            becomes("GET from a replica", () -> client.readFromReplica(key), key);
        }
    }

    /** Counters that are increased while the cluster changes. Each INCR must be carried out once. */
    private record Counters(Client client, List<String> keys, long[] rounds) {
        static Counters of(Client client, List<String> keys) {
            return new Counters(client, keys, new long[1]);
        }

        void increase() {
            rounds[0]++;
            check("INCR in a pipeline", client.pipeline(forEach(keys, "INCR", "KEY")), Collections.nCopies(keys.size(), rounds[0]));
        }

        void verify() {
            List<Object> values = client.pipeline(forEach(keys, "GET", "KEY"));
            check("counters", values, Collections.nCopies(keys.size(), String.valueOf(rounds[0])));
        }
    }

    private static void changes(Client client) {
        Counters moving = null;
        int[] redirects = new int[2];
        // The client may read the map of the slots anew between the end of a move and its next command, and then meets no MOVED.
        for (int attempt = 0; attempt < RESHARDS_MAX && (redirects[0] == 0 || redirects[1] == 0); attempt++) {
            moving = Counters.of(client, names("{" + event("tag") + "}java:" + attempt + ":%d", MOVING));
            moving.increase();
            during("reshard", moving::increase);
            moving.verify();
            redirects = Arrays.stream(event("redirects").split(" ")).mapToInt(Integer::parseInt).toArray();
        }
        check(redirects[0] + " MOVED and " + redirects[1] + " ASK were followed", redirects[0] > 0 && redirects[1] > 0, true);
        Counters kept = Counters.of(client, names("java:f:%d", KEYS));
        kept.increase();
        during("failover", kept::increase);
        for (int round = 0; round < 5; round++) {
            kept.increase();
        }
        kept.verify();
        check("kill", event("kill"), "ok");
        List<String> keys = names("java:k:%d", DEPTH);
        becomes("SET after a kill", () -> client.pipeline(forEach(keys, "SET", "KEY", "KEY")), Collections.nCopies(DEPTH, "OK"));
        check("values after a kill", client.pipeline(forEach(keys, "GET", "KEY")), keys);
        moving.verify();
        kept.verify();
        check("values at the end", client.pipeline(forEach(names("java:%d", KEYS), "GET", "KEY")), names("java:%d", KEYS));
    }

    /** Runs the page's examples, which this file must have as the page shows them. */
    private static void page(Client client) {
        try {
            String[] blocks = Files.readString(Path.of("../docs/cluster.md")).split("```java\n");
            String source = Files.readString(Path.of("java/ClusterTest.java"));
            List<String> examples = Arrays.stream(blocks).skip(1).map(block -> block.split("```")[0]).filter(code -> code.contains("countVisits")).toList();
            check("examples of the page", examples.size(), 2);
            for (String example : examples) check("the page's example is in the source", source.contains(example), true);
            for (long round = 1; round <= 2; round++) {
                check("visits", client.countVisitsOf(names("%d", KEYS)), Collections.nCopies(KEYS, round));
            }
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    /** Counts a visit of each page, in one pipeline for each node, and returns the new counts. The client is a RedisClusterClient. */
    static List<Long> countVisits(UnifiedJedis client, List<String> pages) {
        try (AbstractPipeline pipeline = client.pipelined()) {
            List<Response<Long>> counts = pages.stream().map(page -> pipeline.incr("visits:" + page)).toList();
            pipeline.sync();
            return counts.stream().map(Response::get).toList();
        }
    }

    /** Counts a visit of each page, in one pipeline for each node, and returns the new counts. */
    static List<Long> countVisits(StatefulRedisClusterConnection<String, String> connection, List<String> pages) throws Exception {
        connection.setAutoFlushCommands(false);
        List<RedisFuture<Long>> futures = pages.stream().map(page -> connection.async().incr("visits:" + page)).toList();
        // Before the flush: a connection that opens meanwhile then writes at once.
        connection.setAutoFlushCommands(true);
        connection.flushCommands();
        List<Long> counts = new ArrayList<>();
        for (RedisFuture<Long> future : futures) counts.add(future.get(10, TimeUnit.SECONDS));
        return counts;
    }

    /**
     * Jedis. Its pipeline reports redirections instead of following them, and a single command follows them. While a primary is away, a
     * pipeline doesn't ask for the slots again, so that it needs the periodic refresh, which is off by default.
     */
    private static class JedisClient implements Client {
        private final redis.clients.jedis.RedisClusterClient client;
        private final CommandObjects objects = new CommandObjects(RedisProtocol.RESP3);
        private String sha;

        JedisClient() {
            DefaultJedisClientConfig config = DefaultJedisClientConfig.builder().readOnlyForRedisClusterReplicas().build();
            HashSet<HostAndPort> nodes = new HashSet<>(List.of(new HostAndPort("127.0.0.1", PORTS[0]), new HostAndPort("127.0.0.1", PORTS[1])));
            client = redis.clients.jedis.RedisClusterClient.builder().nodes(nodes).clientConfig(config)
                .topologyRefreshPeriod(Duration.ofSeconds(1)).build();
        }

        @Override public Object run(String... command) {
            return switch (command[0]) {
                case "SET" -> client.set(command[1], command[2]);
                case "INCR" -> client.incr(command[1]);
                case "GET" -> client.get(command[1]);
                default -> client.lpush(command[1], command[2]);
            };
        }

        @Override public List<Long> countVisitsOf(List<String> pages) {
            return countVisits(client, pages);
        }

        private static Response<?> queue(redis.clients.jedis.PipeliningBase pipeline, String[] command) {
            return switch (command[0]) {
                case "SET" -> pipeline.set(command[1], command[2]);
                case "INCR" -> pipeline.incr(command[1]);
                case "GET" -> pipeline.get(command[1]);
                default -> pipeline.lpush(command[1], command[2]);
            };
        }

        @Override public List<Object> pipeline(List<String[]> commands) {
            List<Response<?>> responses;
            try (redis.clients.jedis.ClusterPipeline pipeline = client.pipelined()) {
                responses = commands.stream().<Response<?>>map(command -> queue(pipeline, command)).toList();
                pipeline.sync();
            }
            return IntStream.range(0, commands.size()).mapToObj(number -> value(responses.get(number), commands.get(number))).toList();
        }

        private Object value(Response<?> response, String[] command) {
            try {
                return response.get();
            } catch (JedisRedirectionException e) {
                return run(command);
            } catch (JedisDataException e) {
                return e.getMessage();
            }
        }

        @Override public List<Object> transaction(List<String[]> commands) {
            try (Connection connection = client.getConnectionFromSlot(JedisClusterCRC16.getSlot(commands.get(0)[1]))) {
                Transaction transaction = new Transaction(connection);
                commands.forEach(command -> queue(transaction, command));
                return transaction.exec();
            }
        }

        @Override public List<String> mget(String... keys) {
            return client.mget(keys);
        }

        @Override public String sunionError(String first, String second) {
            try (Connection connection = client.getConnectionFromSlot(JedisClusterCRC16.getSlot(first))) {
                return connection.executeCommand(objects.sunion(first, second)).toString();
            } catch (JedisDataException e) {
                check("CROSSSLOT of a node", e.getMessage(), CROSS_SLOT);
            }
            return thrown(() -> client.sunion(first, second));
        }

        @Override public Object eval(String key, String argument) {
            return client.eval(SCRIPT, List.of(key), List.of(argument));
        }

        @Override public Object evalsha(String key, String argument) {
            sha = sha == null ? client.scriptLoad(SCRIPT, key) : sha;
            return client.evalsha(sha, List.of(key), List.of(argument));
        }

        @Override public void subscribe(String channel, boolean sharded, BlockingQueue<String> heard) {
            Runnable subscribe = sharded
                ? () -> client.ssubscribe(new JedisShardedPubSub() {
                    @Override public void onSMessage(String channel, String message) {
                        heard.add(channel + " " + message);
                    }
                }, channel)
                : () -> client.subscribe(new JedisPubSub() {
                    @Override public void onMessage(String channel, String message) {
                        heard.add(channel + " " + message);
                    }
                }, channel);
            // A subscription ends with the connection to its node.
            Thread thread = new Thread(() -> thrown(subscribe));
            thread.setDaemon(true);
            thread.start();
        }

        @Override public void publish(String channel, boolean sharded) {
            if (sharded) {
                client.spublish(channel, "hello");
            } else {
                client.publish(channel, "hello");
            }
        }

        @Override public String readFromReplica(String key) {
            return client.executeCommandToReplica(objects.get(key));
        }

        @Override public void close() {
            client.close();
        }
    }

    /**
     * Lettuce, with the refresh of its topology that its manual recommends. Commands that it has queued for a dead node wait for that
     * node, even if another one has taken its slots, until they time out and the application repeats them.
     */
    private static class LettuceClient implements Client {
        private static final Duration TIMEOUT = Duration.ofSeconds(10);
        private final io.lettuce.core.cluster.RedisClusterClient client;
        private final StatefulRedisClusterConnection<String, String> connection;
        private final StatefulRedisClusterConnection<String, String> reader;
        private final RedisAdvancedClusterAsyncCommands<String, String> async;
        private String sha;

        LettuceClient() {
            client = io.lettuce.core.cluster.RedisClusterClient.create(
                Arrays.stream(PORTS).limit(2).mapToObj(LettuceClient::address).toList());
            ClusterTopologyRefreshOptions refresh = ClusterTopologyRefreshOptions.builder().enableAllAdaptiveRefreshTriggers()
                .adaptiveRefreshTriggersTimeout(Duration.ofSeconds(1)).enablePeriodicRefresh(Duration.ofSeconds(1)).build();
            client.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(refresh).build());
            connection = client.connect();
            reader = client.connect();
            reader.setReadFrom(ReadFrom.REPLICA);
            async = connection.async();
        }

        private static RedisURI address(int port) {
            return RedisURI.Builder.redis("127.0.0.1", port).withTimeout(TIMEOUT).build();
        }

        @Override public List<Long> countVisitsOf(List<String> pages) throws Exception {
            return countVisits(connection, pages);
        }

        private RedisFuture<?> send(String[] command) {
            return switch (command[0]) {
                case "SET" -> async.set(command[1], command[2]);
                case "INCR" -> async.incr(command[1]);
                case "GET" -> async.get(command[1]);
                default -> async.lpush(command[1], command[2]);
            };
        }

        private static Object value(RedisFuture<?> future) {
            try {
                return future.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
            } catch (ExecutionException e) {
                return e.getCause().getMessage();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        @Override public Object run(String... command) {
            return value(send(command));
        }

        @Override public List<Object> pipeline(List<String[]> commands) {
            connection.setAutoFlushCommands(false);
            List<RedisFuture<?>> futures = commands.stream().<RedisFuture<?>>map(this::send).toList();
            // Redirected commands are written one by one, and so are those of a connection that opens meanwhile.
            connection.setAutoFlushCommands(true);
            connection.flushCommands();
            return futures.stream().map(LettuceClient::value).toList();
        }

        @Override public List<Object> transaction(List<String[]> commands) {
            String node = connection.getPartitions().getPartitionBySlot(SlotHash.getSlot(commands.get(0)[1])).getNodeId();
            var transaction = connection.getConnection(node).sync();
            transaction.multi();
            for (String[] command : commands) {
                switch (command[0]) {
                    case "SET" -> transaction.set(command[1], command[2]);
                    case "INCR" -> transaction.incr(command[1]);
                    default -> transaction.get(command[1]);
                }
            }
            return transaction.exec().stream().toList();
        }

        @Override public List<String> mget(String... keys) {
            return connection.sync().mget(keys).stream().map(value -> value.getValueOrElse(null)).toList();
        }

        @Override public String sunionError(String first, String second) {
            String message = String.valueOf(value(async.sunion(first, second)));
            check("CROSSSLOT of a node", message, CROSS_SLOT);
            return message;
        }

        @Override public Object eval(String key, String argument) {
            return connection.sync().eval(SCRIPT, ScriptOutputType.INTEGER, new String[] {key}, argument);
        }

        @Override public Object evalsha(String key, String argument) {
            // The client loads a script on all nodes.
            sha = sha == null ? connection.sync().scriptLoad(SCRIPT) : sha;
            return connection.sync().evalsha(sha, ScriptOutputType.INTEGER, new String[] {key}, argument);
        }

        @Override public void subscribe(String channel, boolean sharded, BlockingQueue<String> heard) {
            StatefulRedisClusterPubSubConnection<String, String> subscriber = client.connectPubSub();
            subscriber.addListener(new RedisPubSubAdapter<String, String>() {
                @Override public void message(String channel, String message) {
                    heard.add(channel + " " + message);
                }

                @Override public void smessage(String channel, String message) {
                    heard.add(channel + " " + message);
                }
            });
            if (sharded) {
                subscriber.sync().ssubscribe(channel);
            } else {
                subscriber.sync().subscribe(channel);
            }
        }

        @Override public void publish(String channel, boolean sharded) {
            if (sharded) {
                connection.sync().spublish(channel, "hello");
            } else {
                connection.sync().publish(channel, "hello");
            }
        }

        @Override public String readFromReplica(String key) {
            return reader.sync().get(key);
        }

        @Override public void close() {
            client.shutdown(0, 1, TimeUnit.SECONDS);
        }
    }

    public static void main(String[] arguments) {
        try (Client client = arguments[0].equals("jedis") ? new JedisClient() : new LettuceClient()) {
            singleCommands(client);
            page(client);
            pipelines(client);
            oneSlot(client);
            scripts(client);
            subscriptions(client);
            replicas(client);
            changes(client);
            System.out.println(checks + " checks");
            System.out.flush();
            // Subscribers' threads would go on.
            Runtime.getRuntime().halt(0);
        } catch (RuntimeException e) {
            e.printStackTrace(System.out);
            Runtime.getRuntime().halt(1);
        }
    }
}
