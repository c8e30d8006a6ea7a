// Jedis's calls for RediSearch's suggestions, unmodified, in both protocols and in a pipeline.

import java.net.URI;
import java.util.List;
import java.util.Objects;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.resps.Tuple;

public class JedisSuggestionsTest {
    private static int checks = 0;

    /** One check: ends the program where {@code actual} is not {@code expected}. */
    private static void check(String what, Object actual, Object expected) {
        checks++;
        if (!Objects.equals(actual, expected)) {
            System.out.println(what + ":\n  expected " + expected + "\n  got      " + actual);
            System.exit(1);
        }
    }

    private static void suggestions(HostAndPort address, RedisProtocol protocol) {
        try (JedisPooled client = new JedisPooled(address, DefaultJedisClientConfig.builder().protocol(protocol).build())) {
            client.flushAll();
            check("an empty key", client.ftSugGet("ac", "a"), List.of());
            check("ftSugAdd", client.ftSugAdd("ac", "The Matrix", 10), 1L);
            check("ftSugAdd", client.ftSugAdd("ac", "Métropolis", 3), 2L);
            check("ftSugAddIncr", client.ftSugAddIncr("ac", "The Mask", 4), 3L);
            check("ftSugLen", client.ftSugLen("ac"), 3L);
            check("ftSugGet", client.ftSugGet("ac", "the m"), List.of("The Matrix", "The Mask"));
            check("fuzzy", client.ftSugGet("ac", "MXT", true, 5), List.of("Métropolis"));
            check("one", client.ftSugGet("ac", "t", false, 1), List.of("The Matrix"));
            List<Tuple> scored = client.ftSugGetWithScores("ac", "the matri");
            check("ftSugGetWithScores", scored, List.of(new Tuple("The Matrix", 7.071067810058594)));
            check("the same, fuzzy", client.ftSugGetWithScores("ac", "the matrx", true, 2).get(0).getElement(), "The Matrix");
            check("ftSugDel", client.ftSugDel("ac", "The Mask"), true);
            check("ftSugDel", client.ftSugDel("ac", "The Mask"), false);
            check("type", client.type("ac"), "trietype0");
            Pipeline pipeline = client.pipelined();
            Response<Long> added = pipeline.ftSugAdd("ac", "Theodora", 5);
            Response<List<String>> found = pipeline.ftSugGet("ac", "the");
            pipeline.sync();
            check("in a pipeline", added.get(), 3L);
            check("in a pipeline", found.get(), List.of("The Matrix", "Theodora"));
        }
    }

    public static void main(String[] arguments) {
        URI url = URI.create(System.getenv("PENSTOCK_URL"));
        HostAndPort address = new HostAndPort(url.getHost(), url.getPort());
        suggestions(address, RedisProtocol.RESP2);
        suggestions(address, RedisProtocol.RESP3);
        System.out.println(checks + " checks");
    }
}
