import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.api.StatefulRedisConnection;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;

/** Lettuce during planned failovers: see moving_test.py for the contract of these programs. */
public final class MovingClient {
    private static final int WRITERS = 8;
    private static final int DEPTH = 20;

    /** The calls of the client. */
    private interface Calls {
        /** Increments a counter DEPTH times in a pipeline; returns the last reply. */
        long increment(String key) throws Exception;

        void push(String entry) throws Exception;

        /** Pops an entry within a second; returns false without one. */
        boolean pop() throws Exception;
    }

    private static final List<String> errors = new CopyOnWriteArrayList<>();
    private static final AtomicLong longestNs = new AtomicLong();
    private static final AtomicLongArray acknowledged = new AtomicLongArray(WRITERS);
    private static final AtomicLong pushed = new AtomicLong();
    private static final AtomicLong popped = new AtomicLong();
    private static volatile boolean stopped;

    /** Runs a call. Notes its time beyond the allowed one, and its error; returns null then. */
    private static <T> T timed(long allowedNs, Callable<T> call) {
        long began = System.nanoTime();
        try {
            return call.call();
        } catch (Exception error) {
            errors.add(String.valueOf(error).replaceAll("[\"\\\\\n]", " "));
            return null;
        } finally {
            longestNs.accumulateAndGet(System.nanoTime() - began - allowedNs, Math::max);
        }
    }

    private static Calls lettuce(URI uri) {
        RedisClient client = RedisClient.create(uri.toString());
        StatefulRedisConnection<String, String> shared = client.connect();
        StatefulRedisConnection<String, String> blocking = client.connect();
        return new Calls() {
            @Override
            public long increment(String key) throws Exception {
                List<RedisFuture<Long>> replies = new ArrayList<>();
                for (int i = 0; i < DEPTH; i++) {
                    replies.add(shared.async().incr(key));
                }
                return replies.get(DEPTH - 1).get(30, TimeUnit.SECONDS);
            }

            @Override
            public void push(String entry) {
                shared.sync().rpush("queue", entry);
            }

            @Override
            public boolean pop() {
                return blocking.sync().blpop(1, "queue") != null;
            }
        };
    }

    public static void main(String[] arguments) throws Exception {
        URI uri = URI.create(System.getenv("PENSTOCK_URL"));
        Calls calls = lettuce(uri);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < WRITERS; number++) {
            int own = number;
            threads.add(new Thread(() -> {
                while (!stopped) {
                    Long last = timed(0, () -> calls.increment("count:" + own));
                    if (last != null) {
                        acknowledged.set(own, last);
                    }
                    rest(1);
                }
            }));
        }
        threads.add(new Thread(() -> {
            while (!stopped) {
                if (timed(0, () -> { calls.push(String.valueOf(pushed)); return true; }) != null) {
                    pushed.incrementAndGet();
                }
                rest(20);
            }
        }));
        threads.add(new Thread(() -> {
            while (!stopped) {
                if (Boolean.TRUE.equals(timed(TimeUnit.SECONDS.toNanos(1), calls::pop))) {
                    popped.incrementAndGet();
                }
            }
        }));
        // The first calls load classes.
        calls.increment("warm");
        threads.forEach(Thread::start);
        System.out.println("running");
        System.in.readAllBytes();
        stopped = true;
        for (Thread thread : threads) {
            thread.join();
        }
        List<String> quoted = errors.stream().map(error -> "\"" + error + "\"").toList();
        System.out.printf("{\"errors\": %s, \"longest_s\": %s, \"acknowledged\": %s, \"pushed\": %d, \"popped\": %d}%n",
            quoted, longestNs.get() / 1e9, acknowledged, pushed.get(), popped.get());
        System.exit(0);
    }

    private static void rest(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
