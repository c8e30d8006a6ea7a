// What docs/scaling.md says of JedisSharding: three servers that the client spreads keys over, and a fourth that replaces one of them.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.JedisSharding;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.ShardedPipeline;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.params.XReadParams;
import redis.clients.jedis.providers.ShardedConnectionProvider;
import redis.clients.jedis.resps.StreamEntry;

// Jedis 6 calls its sharding deprecated.
@SuppressWarnings("deprecation")
public class JedisShardingTest {
    private static final int KEYS = 600;
    private static final int SHARDS = 3;
    private static final String REFUSAL = "JedisException: Keys must generate same hash.";
    private static final int PATIENCE_SECONDS = 30;
    private static final List<HostAndPort> SERVERS =
        Arrays.stream(System.getenv("PENSTOCK_PORTS").split(",")).map(port -> new HostAndPort("127.0.0.1", Integer.parseInt(port))).toList();
    private static int checks = 0;

    /** One check: ends the program where {@code actual} is not {@code expected}. */
    private static void check(String what, Object actual, Object expected) {
        checks++;
        if (!Objects.equals(actual, expected)) {
            System.out.println(what + ":\n  expected " + expected + "\n  got      " + actual);
            System.exit(1);
        }
    }

    /** The name of what {@code work} throws, with its message; null where it throws nothing. */
    private static String thrown(Runnable work) {
        try {
            work.run();
            return null;
        } catch (RuntimeException e) {
            return e.getClass().getSimpleName() + ": " + e.getMessage();
        }
    }

    private static void waitUntil(String what, BooleanSupplier holds) {
        long deadline = System.nanoTime() + PATIENCE_SECONDS * 1_000_000_000L;
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                System.out.println("waited in vain until " + what);
                System.exit(1);
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private static DefaultJedisClientConfig config(RedisProtocol protocol) {
        return DefaultJedisClientConfig.builder().protocol(protocol).timeoutMillis(PATIENCE_SECONDS * 1000).build();
    }

    private static Jedis server(HostAndPort address) {
        return new Jedis(address, config(RedisProtocol.RESP2));
    }

    private static String info(HostAndPort address, String name) {
        try (Jedis server = server(address)) {
            return server.info().lines().filter(line -> line.startsWith(name + ":")).findFirst().orElse("");
        }
    }

    private static long size(HostAndPort address) {
        try (Jedis server = server(address)) {
            return server.dbSize();
        }
    }

    private static String key(int number) {
        return "key:" + number;
    }

    private static String value(int number) {
        return "value:" + number;
    }

    private static void allFound(JedisSharding client, String moment) {
        for (int number = 0; number < KEYS; number++) {
            check(key(number) + ", " + moment, client.get(key(number)), value(number));
        }
    }

    private static void spread(JedisSharding client) {
        for (HostAndPort address : SERVERS.subList(0, SHARDS)) {
            try (Jedis server = server(address)) {
                server.flushAll();
            }
        }
        for (int number = 0; number < KEYS; number++) {
            check("SET", client.set(key(number), value(number)), "OK");
        }
        allFound(client, "at first");
        long[] sizes = SERVERS.stream().limit(SHARDS).mapToLong(JedisShardingTest::size).toArray();
        check("keys on all servers", LongStream.of(sizes).sum(), (long) KEYS);
        for (long size : sizes) {
            check("no server has less than half of its share: " + Arrays.toString(sizes), size > KEYS / SHARDS / 2, true);
        }
        check("DBSIZE", thrown(client::dbSize), "UnsupportedOperationException: null");
    }

    private static void pipeline(JedisSharding client) {
        Map<Integer, Response<String>> found = new HashMap<>();
        Map<Integer, Response<Long>> counted = new HashMap<>();
        try (ShardedPipeline pipeline = client.pipelined()) {
            for (int number = 0; number < KEYS; number++) {
                found.put(number, pipeline.get(key(number)));
                counted.put(number, pipeline.incr("count:" + number % 7));
            }
        }
        for (int number = 0; number < KEYS; number++) {
            check("GET in a pipeline", found.get(number).get(), value(number));
            check("INCR in a pipeline", counted.get(number).get(), number / 7 + 1L);
        }
    }

    /** Marks count in a client that is given their pattern, and in no other, of which the page warns. */
    private static void marks(JedisSharding marked, JedisSharding unmarked) {
        marked.sadd("{m}a", "1", "2");
        marked.sadd("b:{m}", "2", "3");
        check("SUNIONSTORE", marked.sunionstore("all{m}", "{m}a", "b:{m}"), 3L);
        check("MSET", marked.mset("{n}a", "1", "{n}b", "2"), "OK");
        check("MGET", marked.mget("{n}b", "{n}a"), List.of("2", "1"));
        check("GET after MSET", marked.get("{n}b"), "2");
        check("DEL", marked.del("{n}a", "{n}b"), 2L);
        check("keys without a mark", thrown(() -> marked.mget("a", "b")), REFUSAL);
        check("a client without marks", thrown(() -> unmarked.mget("{n}a", "{n}b")), REFUSAL);
    }

    private static final int MARKED = 30;

    /** How many of the keys with marks a pipeline finds. */
    private static long foundBy(ShardedPipeline pipeline) {
        List<Response<String>> replies = IntStream.range(0, MARKED).mapToObj(number -> pipeline.get("{" + number + "}k")).toList();
        pipeline.close();
        return replies.stream().filter(reply -> "1".equals(reply.get())).count();
    }

    /** The pipeline of a client with marks knows nothing of them: the page says which one does. */
    private static void pipelineOfMarks(JedisSharding marked, ShardedConnectionProvider provider) {
        for (int number = 0; number < MARKED; number++) {
            marked.set("{" + number + "}k", "1");
        }
        long found = foundBy(marked.pipelined());
        check("keys with marks that the client's pipeline finds: " + found, found > 0 && found < MARKED, true);
        check("keys with marks", foundBy(new ShardedPipeline(provider, JedisSharding.DEFAULT_KEY_TAG_PATTERN)), (long) MARKED);
    }

    private static void transaction(JedisSharding client, ShardedConnectionProvider provider) {
        check("MULTI", thrown(client::multi), "UnsupportedOperationException: null");
        // The connection to the server of a key takes transactions, for what the program knows to be there.
        client.set("{t}count", "1");
        try (Connection connection = provider.getConnection(provider.getNode(provider.getHashingAlgo().hash("t")))) {
            Transaction transaction = new Transaction(connection, false, false);
            transaction.watch("{t}count");
            transaction.multi();
            Response<Long> count = transaction.incr("{t}count");
            transaction.rpush("{t}log", "a", "b");
            check("EXEC", transaction.exec(), List.of(2L, 2L));
            check("INCR in a transaction", count.get(), 2L);
            transaction.watch("{t}count");
            client.set("{t}count", "7");
            transaction.multi();
            transaction.set("{t}count", "0");
            check("EXEC after a change", transaction.exec(), null);
        }
        check("what is there", client.get("{t}count") + client.lrange("{t}log", 0, -1), "7[a, b]");
    }

    private static void scripts(JedisSharding client) {
        String script = "redis.call('set', KEYS[1], ARGV[1]) return {redis.call('incr', KEYS[1]), redis.call('incr', KEYS[2])}";
        List<String> keys = List.of("{s}a", "{s}b");
        check("EVAL", client.eval(script, keys, List.of("4")), List.of(5L, 1L));
        String sum = client.scriptLoad(script, "{s}");
        check("EVALSHA", client.evalsha(sum, keys, List.of("4")), List.of(5L, 2L));
        check("EVAL of unmarked keys", thrown(() -> client.eval(script, List.of("a", "b"), List.of("4"))), REFUSAL);
    }

    private static void blocking(JedisSharding client) {
        check("BLPOP of nothing", client.blpop(1, "{q}one", "{q}two"), null);
        CompletableFuture<List<String>> popped = CompletableFuture.supplyAsync(() -> client.blpop(PATIENCE_SECONDS - 5, "{q}one", "{q}two"));
        String blocked = "blocked_clients";
        waitUntil("BLPOP waits", () -> SERVERS.stream().limit(SHARDS).anyMatch(each -> info(each, blocked).equals(blocked + ":1")));
        client.rpush("{q}two", "job");
        check("BLPOP", popped.join(), List.of("{q}two", "job"));
    }

    private static void streams(JedisSharding client) {
        // More than one, so that not all are on one server.
        for (int number = 0; number < 12; number++) {
            String stream = "stream:" + number;
            Map<String, String> fields = Map.of("field", "value" + number);
            StreamEntryID id = client.xadd(stream, StreamEntryID.NEW_ENTRY, fields);
            List<Map.Entry<String, List<StreamEntry>>> read = client.xread(new XReadParams().count(9), Map.of(stream, new StreamEntryID()));
            check("XREAD", read.get(0).getKey() + read.get(0).getValue(), stream + List.of(new StreamEntry(id, fields)));
            client.xgroupCreate(stream, "group", new StreamEntryID(), false);
            Map<String, StreamEntryID> rest = Map.of(stream, StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
            read = client.xreadGroup("group", "me", new XReadGroupParams().count(9), rest);
            check("XREADGROUP", read.get(0).getKey() + read.get(0).getValue(), stream + List.of(new StreamEntry(id, fields)));
            check("XACK", client.xack(stream, "group", id), 1L);
        }
    }

    /** A listener, and what it hears. */
    private static class Heard extends JedisPubSub {
        final BlockingQueue<String> events = new LinkedBlockingQueue<>();

        @Override
        public void onSubscribe(String channel, int count) {
            events.add("subscribed");
        }

        @Override
        public void onMessage(String channel, String message) {
            events.add(channel + " " + message);
        }
    }

    private static final int PUBLISHED = 90;

    /** SUBSCRIBE and PUBLISH go to any one server. The page says to use a connection to the server that the channel's name hashes to. */
    private static void publishSubscribe(JedisSharding client, ShardedConnectionProvider provider) throws InterruptedException {
        Heard heard = new Heard();
        Thread thread = new Thread(() -> client.subscribe(heard, "channel"));
        thread.start();
        check("SUBSCRIBE of the client", heard.events.take(), "subscribed");
        long reached = IntStream.range(0, PUBLISHED).mapToLong(number -> client.publish("channel", "hello")).sum();
        check("of what the client publishes, only some is heard: " + reached, reached > 0 && reached < PUBLISHED, true);
        List<String> messages = new ArrayList<>();
        while (messages.size() < reached) {
            messages.add(heard.events.take());
        }
        check("the messages", messages, Collections.nCopies((int) reached, "channel hello"));
        heard.unsubscribe();
        thread.join();
        HostAndPort address = provider.getNode(provider.getHashingAlgo().hash("channel"));
        try (Jedis subscriber = server(address); Jedis publisher = server(address)) {
            thread = new Thread(() -> subscriber.subscribe(heard, "channel"));
            thread.start();
            check("SUBSCRIBE", heard.events.take(), "subscribed");
            check("PUBLISH", publisher.publish("channel", "hello"), 1L);
            check("the message", heard.events.take(), "channel hello");
            heard.unsubscribe();
            thread.join();
        }
    }

    /** The second server is shut down, and its replica takes its position in the list: no key moves. */
    private static void replacement(JedisSharding client) {
        HostAndPort old = SERVERS.get(1);
        HostAndPort replica = SERVERS.get(SHARDS);
        try (Jedis server = server(replica)) {
            server.replicaof(old.getHost(), old.getPort());
            waitUntil("the link is up", () -> info(replica, "master_link_status").equals("master_link_status:up"));
            waitUntil("the replica has all", () -> size(replica) == size(old));
            try (Jedis primary = server(old)) {
                primary.shutdown();
            } catch (JedisConnectionException e) {
                // It is on its way.
            }
            waitUntil("the server is away", () -> thrown(() -> size(old)) != null);
            server.replicaofNoOne();
            long lost = IntStream.range(0, KEYS).mapToObj(number -> thrown(() -> client.get(key(number))))
                .filter(error -> error != null && error.startsWith("JedisConnectionException")).count();
            check("keys that are errors", lost, (long) server.keys("key:*").size());
        }
        try (JedisSharding replaced = new JedisSharding(List.of(SERVERS.get(0), replica, SERVERS.get(2)), config(RedisProtocol.RESP3))) {
            allFound(replaced, "after the replacement");
        }
        try (JedisSharding exchanged = new JedisSharding(List.of(replica, SERVERS.get(0), SERVERS.get(2)), config(RedisProtocol.RESP3))) {
            long missed = IntStream.range(0, KEYS).filter(number -> exchanged.get(key(number)) == null).count();
            check("in another order, keys are missed: " + missed, missed > KEYS / SHARDS, true);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        List<HostAndPort> shards = SERVERS.subList(0, SHARDS);
        for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            ShardedConnectionProvider provider = new ShardedConnectionProvider(shards, config(protocol));
            try (JedisSharding client = new JedisSharding(shards, config(protocol));
                JedisSharding marked = new JedisSharding(provider, JedisSharding.DEFAULT_KEY_TAG_PATTERN)) {
                spread(client);
                allFound(marked, "by a client with marks");
                pipeline(client);
                marks(marked, client);
                pipelineOfMarks(marked, provider);
                transaction(marked, provider);
                scripts(marked);
                blocking(marked);
                streams(marked);
                publishSubscribe(marked, provider);
                if (protocol == RedisProtocol.RESP3) {
                    replacement(client);
                }
            }
        }
        System.out.println(checks + " checks");
        System.exit(0);
    }
}
