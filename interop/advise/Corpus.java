// The Java applications of the advisor's corpus: the argument names one of them. See corpus.py for its environment, and corpus.tsv
// for what each does right or wrong.

import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RBatch;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Transaction;

public class Corpus {
    static final int ROUNDS = 100;
    static final int THINK_MS = 20;

    static Jedis jedis(String variable) {
        return new Jedis(java.net.URI.create(System.getenv(variable)));
    }

    static void fill() {
        try (Jedis direct = jedis("DIRECT_URL"); Pipeline pipe = direct.pipelined()) {
            for (int n = 0; n < ROUNDS; n++) {
                pipe.hset("settings", "field " + n, "value " + n);
                pipe.set("page:" + n, "text " + n);
            }
            pipe.sync();
        }
    }

    static RedissonClient redisson() {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(System.getenv("PENSTOCK_URL")).setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(1).setSubscriptionConnectionMinimumIdleSize(1);
        return Redisson.create(config);
    }

    static void run(String name) throws Exception {
        switch (name) {
            case "jedis-hget-loop" -> {
                fill();
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < ROUNDS; n++) {
                        jedis.hget("settings", "field " + n);
                    }
                }
            }
            case "jedis-del-loop" -> {
                fill();
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < ROUNDS; n++) {
                        jedis.del("page:" + n);
                    }
                }
            }
            case "jedis-pipeline" -> {
                fill();
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int round = 0; round < 10; round++) {
                        try (Pipeline pipe = jedis.pipelined()) {
                            for (int n = 0; n < ROUNDS; n++) {
                                pipe.get("page:" + n);
                            }
                        }
                    }
                }
            }
            case "redisson-lock" -> {
                RedissonClient redisson = redisson();
                for (int n = 0; n < 40; n++) {
                    RLock lock = redisson.getLock("lock:" + n);
                    lock.lock(10, TimeUnit.SECONDS);
                    Thread.sleep(THINK_MS);
                    lock.unlock();
                    Thread.sleep(THINK_MS);
                }
                redisson.shutdown();
            }
            case "redisson-bucket-loop" -> {
                fill();
                RedissonClient redisson = redisson();
                for (int n = 0; n < ROUNDS; n++) {
                    RBucket<String> page = redisson.getBucket("page:" + n);
                    page.get();
                }
                redisson.shutdown();
            }
            case "redisson-batch" -> {
                RedissonClient redisson = redisson();
                for (int round = 0; round < 5; round++) {
                    RBatch batch = redisson.createBatch();
                    for (int n = 0; n < ROUNDS; n++) {
                        batch.getBucket("page:" + n).setAsync("text " + n);
                    }
                    batch.execute();
                }
                redisson.shutdown();
            }
            case "jedis-get-loop" -> {
                fill();
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < ROUNDS; n++) {
                        jedis.get("page:" + n);
                    }
                }
            }
            case "jedis-set-loop" -> {
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < ROUNDS; n++) {
                        jedis.set("page:" + n, "text " + n);
                    }
                }
            }
            case "jedis-sadd-loop" -> {
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < ROUNDS; n++) {
                        jedis.sadd("visitors", "visitor " + n);
                    }
                }
            }
            case "jedis-hset-loop" -> {
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < ROUNDS; n++) {
                        jedis.hset("settings", "field " + n, "value " + n);
                    }
                }
            }
            case "jedis-transaction-per-row" -> {
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < ROUNDS; n++) {
                        try (Transaction transaction = jedis.multi()) {
                            transaction.hset("row:" + n, "value", "" + n);
                            transaction.sadd("rows", "" + n);
                            transaction.exec();
                        }
                    }
                }
            }
            case "jedis-requests" -> {
                fill();
                java.util.Random random = new java.util.Random(5);
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < ROUNDS; n++) {
                        jedis.get("page:" + random.nextInt(ROUNDS));
                        Thread.sleep(5);
                    }
                }
            }
            case "jedis-linked-list" -> {
                try (Jedis direct = jedis("DIRECT_URL"); Pipeline pipe = direct.pipelined()) {
                    for (int n = 0; n < ROUNDS; n++) {
                        pipe.set("node:" + n * 7919 % 100_003, "" + (n + 1) * 7919 % 100_003);
                    }
                    pipe.sync();
                }
                String node = "0";
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < ROUNDS; n++) {
                        node = jedis.get("node:" + node);
                    }
                }
            }
            case "jedis-mget-chunks" -> {
                fill();
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int round = 0; round < 10; round++) {
                        jedis.mget(java.util.stream.IntStream.range(0, ROUNDS).mapToObj(n -> "page:" + n).toArray(String[]::new));
                    }
                }
            }
            // Pages of SCAN, and one pipeline for the keys of each page.
            case "jedis-scan-and-pipeline" -> {
                fill();
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    String cursor = "0";
                    do {
                        var page = jedis.scan(cursor, new redis.clients.jedis.params.ScanParams().match("page:*").count(10));
                        try (Pipeline pipe = jedis.pipelined()) {
                            page.getResult().forEach(pipe::strlen);
                        }
                        cursor = page.getCursor();
                    } while (!cursor.equals("0"));
                }
            }
            // Workers take the first job that is due; the reply to ZREM tells which of them has it.
            case "jedis-delayed-jobs" -> {
                try (Jedis direct = jedis("DIRECT_URL"); Pipeline pipe = direct.pipelined()) {
                    for (int n = 0; n < 50; n++) {
                        pipe.zadd("delayed", n, "job-" + Integer.toHexString(n * 104_729));
                    }
                    pipe.sync();
                }
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    for (int n = 0; n < 50; n++) {
                        String due = jedis.zrangeByScore("delayed", 0, 1000, 0, 1).get(0);
                        if (jedis.zrem("delayed", due) == 1) {
                            Thread.sleep(THINK_MS);
                            jedis.rpush("done", due);
                        }
                    }
                }
            }
            // The value of a stock: price and number of each article, one by one.
            case "jedis-price-and-stock" -> {
                try (Jedis direct = jedis("DIRECT_URL"); Pipeline pipe = direct.pipelined()) {
                    for (int n = 0; n < ROUNDS; n++) {
                        pipe.set("price:" + (n * 11 + 4), "" + (199 + n * 5));
                        pipe.hset("stock:" + (n * 11 + 4), "left", "" + n * 31 % 23);
                    }
                    pipe.sync();
                }
                try (Jedis jedis = jedis("PENSTOCK_URL")) {
                    long value = 0;
                    for (int n = 0; n < ROUNDS; n++) {
                        long price = Long.parseLong(jedis.get("price:" + (n * 11 + 4)));
                        value += price * Long.parseLong(jedis.hget("stock:" + (n * 11 + 4), "left"));
                    }
                }
            }
            default -> throw new IllegalArgumentException(name);
        }
    }

    public static void main(String[] args) throws Exception {
        run(args[0]);
        System.exit(0);
    }
}
