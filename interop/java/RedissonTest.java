// Redisson, unmodified: nearly all that it does is scripts. Its locks, what else threads of several machines meet at, and
// its collections.

import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.config.Config;

public class RedissonTest {
    private static final ExecutorService OTHERS = Executors.newCachedThreadPool();
    private static RedissonClient redisson;
    private static int checks = 0;

    /** One check: ends the program where {@code actual} is not {@code expected}. */
    private static void check(String what, Object actual, Object expected) {
        checks++;
        if (!Objects.equals(actual, expected)) {
            System.out.println(what + ":\n  expected " + expected + "\n  got      " + actual);
            System.exit(1);
        }
    }

    /** Does something on another thread, which holds none of this thread's locks. */
    private static <T> T elsewhere(Callable<T> what) throws Exception {
        return OTHERS.submit(what).get(20, TimeUnit.SECONDS);
    }

    private static boolean lockAndUnlock(RLock lock, long waitMs) throws InterruptedException {
        boolean locked = lock.tryLock(waitMs, 10_000, TimeUnit.MILLISECONDS);
        if (locked) {
            lock.unlock();
        }
        return locked;
    }

    private static void locks() throws Exception {
        RLock lock = redisson.getLock("lock");
        check("a free lock", lock.tryLock(0, 10, TimeUnit.SECONDS), true);
        check("a lock of one's own", lock.tryLock(0, 10, TimeUnit.SECONDS), true);
        check("held so often", lock.getHoldCount(), 2);
        check("another thread's", elsewhere(() -> lockAndUnlock(redisson.getLock("lock"), 100)), false);
        lock.unlock();
        Future<Boolean> waiting = OTHERS.submit(() -> lockAndUnlock(redisson.getLock("lock"), 10_000));
        Thread.sleep(200);
        lock.unlock();
        check("one that was waited for", waiting.get(10, TimeUnit.SECONDS), true);
        check("free again", lock.isLocked(), false);
        try {
            lock.unlock();
            check("given back twice", "no error", "an error");
        } catch (IllegalMonitorStateException error) {
            checks++;
        }
        lock.lock();
        check("a lock that is kept alive", lock.remainTimeToLive() > 20_000, true);
        check("taken away", lock.forceUnlock(), true);
    }

    private static void otherLocks() throws Exception {
        RLock fair = redisson.getFairLock("fair");
        check("a fair lock", fair.tryLock(0, 10, TimeUnit.SECONDS), true);
        check("in its queue", elsewhere(() -> lockAndUnlock(redisson.getFairLock("fair"), 100)), false);
        fair.unlock();
        RReadWriteLock both = redisson.getReadWriteLock("both");
        check("a reader", both.readLock().tryLock(0, 10, TimeUnit.SECONDS), true);
        check("another", elsewhere(() -> lockAndUnlock(redisson.getReadWriteLock("both").readLock(), 0)), true);
        check("a writer", elsewhere(() -> lockAndUnlock(redisson.getReadWriteLock("both").writeLock(), 0)), false);
        both.readLock().unlock();
        check("a writer alone", lockAndUnlock(both.writeLock(), 0), true);
        check("two at once", lockAndUnlock(redisson.getMultiLock(redisson.getLock("a"), redisson.getLock("b")), 0), true);
        check("a spinning one", lockAndUnlock(redisson.getSpinLock("spin"), 0), true);
        RFencedLock fenced = redisson.getFencedLock("fenced");
        long first = fenced.lockAndGetToken();
        fenced.unlock();
        check("a token that grows", fenced.lockAndGetToken() > first, true);
        fenced.unlock();
    }

    private static void meetings() throws Exception {
        RSemaphore semaphore = redisson.getSemaphore("semaphore");
        check("permits", semaphore.trySetPermits(2), true);
        check("all of them", semaphore.tryAcquire(2), true);
        check("one more", semaphore.tryAcquire(), false);
        semaphore.release();
        check("one given back", semaphore.availablePermits(), 1);
        RPermitExpirableSemaphore expirable = redisson.getPermitExpirableSemaphore("expirable");
        expirable.trySetPermits(1);
        String permit = expirable.tryAcquire(1, 10, TimeUnit.SECONDS);
        check("a permit for a time", permit != null, true);
        check("another", expirable.tryAcquire(), null);
        expirable.release(permit);
        RCountDownLatch latch = redisson.getCountDownLatch("latch");
        check("a latch", latch.trySetCount(1), true);
        latch.countDown();
        check("opens", latch.await(5, TimeUnit.SECONDS), true);
        RRateLimiter limiter = redisson.getRateLimiter("limiter");
        limiter.trySetRate(RateType.OVERALL, 2, 60, RateIntervalUnit.SECONDS);
        check("within the rate", limiter.tryAcquire(2), true);
        check("beyond it", limiter.tryAcquire(), false);
    }

    private static void collections() throws Exception {
        RMapCache<String, String> cache = redisson.getMapCache("cache");
        cache.put("k", "v", 10, TimeUnit.SECONDS, 5, TimeUnit.SECONDS);
        check("cached", cache.get("k"), "v");
        check("there already", cache.putIfAbsent("k", "w"), "v");
        check("removed", cache.remove("k"), "v");
        RMap<String, Integer> map = redisson.getMap("map");
        check("new in a map", map.put("a", 1), null);
        check("replaced", map.replace("a", 1, 2), true);
        RSetCache<String> set = redisson.getSetCache("set");
        check("added for a time", set.add("x", 10, TimeUnit.SECONDS), true);
        check("still there", set.contains("x"), true);
        RScoredSortedSet<String> sorted = redisson.getScoredSortedSet("sorted");
        sorted.add(1, "a");
        sorted.add(2, "b");
        check("its rank", sorted.addAndGetRank(3, "c"), 2);
        check("the first", sorted.pollFirst(), "a");
        check("swapped", redisson.getAtomicLong("long").compareAndSet(0, 5), true);
        RBucket<String> bucket = redisson.getBucket("bucket");
        bucket.set("x");
        check("compared", bucket.compareAndSet("x", "y"), true);
        check("taken", bucket.getAndDelete(), "y");
        RTransaction transaction = redisson.createTransaction(TransactionOptions.defaults());
        transaction.getMap("map").put("t", 1);
        transaction.commit();
        check("committed", map.get("t"), 1);
    }

    private static void queues() throws Exception {
        RBlockingQueue<String> queue = redisson.getBlockingQueue("queue");
        queue.add("one");
        check("from a queue", queue.poll(1, TimeUnit.SECONDS), "one");
        RDelayedQueue<String> delayed = redisson.getDelayedQueue(queue);
        delayed.offer("later", 300, TimeUnit.MILLISECONDS);
        check("after its delay", queue.poll(10, TimeUnit.SECONDS), "later");
        delayed.destroy();
        RBoundedBlockingQueue<String> bounded = redisson.getBoundedBlockingQueue("bounded");
        bounded.trySetCapacity(1);
        check("room", bounded.offer("a"), true);
        check("no room", bounded.offer("b"), false);
    }

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(System.getenv("PENSTOCK_URL")).setConnectionMinimumIdleSize(2);
        redisson = Redisson.create(config);
        locks();
        otherLocks();
        meetings();
        collections();
        queues();
        Object answer = redisson.getScript().eval(
            RScript.Mode.READ_ONLY, "return ARGV[1] ~= nil", RScript.ReturnType.BOOLEAN, List.of(), "x");
        check("a script of one's own", answer, true);
        redisson.shutdown();
        OTHERS.shutdown();
        System.out.println(checks + " checks");
    }
}
