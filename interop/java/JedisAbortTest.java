// The Jedis example of docs/pipeline-control.md that stops at a failure, which this file must have as the page shows it.

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.util.SafeEncoder;

public class JedisAbortTest {
    private static int checks = 0;

    /** One check: ends the program where {@code actual} is not {@code expected}. */
    private static void check(String what, Object actual, Object expected) {
        checks++;
        if (!Objects.equals(actual, expected)) {
            System.out.println(what + ":\n  expected " + expected + "\n  got      " + actual);
            System.exit(1);
        }
    }

    static final ProtocolCommand PIPELINE = () -> SafeEncoder.encode("PIPELINE");

    /** Runs the commands up to the first failing one; returns the server's account as names and values. */
    static List<?> runUntilFailure(JedisPooled client, List<CommandArguments> commands) {
        try (AbstractPipeline pipeline = client.pipelined()) {
            pipeline.sendCommand(PIPELINE, "ABORT", "ON");
            commands.forEach(command -> pipeline.sendCommand(command));
            Response<Object> account = pipeline.sendCommand(PIPELINE, "SYNC");
            pipeline.sendCommand(PIPELINE, "ABORT", "OFF");
            pipeline.sync();
            return (List<?>) SafeEncoder.encodeObject(account.get());
        }
    }

    private static CommandArguments words(Command command, String... words) {
        CommandArguments arguments = new CommandArguments(command);
        for (String word : words) arguments.add(word);
        return arguments;
    }

    public static void main(String[] args) throws Exception {
        String page = Files.readString(Path.of("../docs/pipeline-control.md"));
        String example = page.split("```java\n")[1].split("```")[0];
        check("the page's example is in the source", Files.readString(Path.of("java/JedisAbortTest.java")).contains(example), true);
        String text = "ERR value is not an integer or out of range";
        try (JedisPooled client = new JedisPooled("127.0.0.1", Integer.parseInt(System.getenv("PENSTOCK_PORT")))) {
            List<?> account = runUntilFailure(client, List.of(
                words(Command.SET, "color", "red"), words(Command.INCR, "color"), words(Command.SET, "color", "blue")));
            check("the account", account, List.of("executed", 2L, "failed", 2L, "error", text, "skipped", 1L));
            check("the value", client.get("color"), "red");
            account = runUntilFailure(client, List.of(words(Command.GET, "color")));
            check("no failure", account, Arrays.asList("executed", 1L, "failed", 0L, "error", null, "skipped", 0L));
        }
        System.out.println(checks + " checks");
    }
}
