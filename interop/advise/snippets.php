<?php

// Runs the advisor's suggestions for phpredis and for Predis: see snippets_test.py.

/** A notification arrived. */
class Told extends Exception {}

function changed(): void
{
    throw new Told();
}

function handle($elements): void {}

/** A warning is an error: a variable or a constant that does not exist. */
set_error_handler(function ($level, $message) {
    throw new ErrorException($message);
});

/** A client with a short time to wait: a subscriber would wait for ever. */
function client(string $language, int $port): object
{
    if ($language === "PHP") {
        $redis = new Redis();
        $redis->connect("127.0.0.1", $port, 5, null, 0, 10);
        return $redis;
    }
    return new Predis\Client(["host" => "127.0.0.1", "port" => $port, "read_write_timeout" => 10]);
}

/** Makes the data to begin with. */
function prepare(Redis $redis, array $snippet): void
{
    foreach ($snippet["seed"] as $words) {
        $redis->rawCommand(...$words);
    }
}

/** Runs a snippet. Returns the error, or null. */
function run(array $snippet, array $input): ?string
{
    $scope = $snippet["values"] + $snippet["lists"] + ["host" => "127.0.0.1", "port" => parse_url($snippet["url"], PHP_URL_PORT)];
    $scope["items"] = $scope["all"] = $snippet["items"];
    $scope["changes"] = $snippet["changes"];
    if (str_contains($snippet["code"], "hmset")) {
        $scope["fields"] = $snippet["map"];
    }
    $scope["options"] = $snippet["language"] === "PHP" ? ["ex" => 60] : ["EX", 60];
    $scope["redis"] = client($snippet["language"], $input["port"]);
    // Nothing is published: the subscription itself is the test.
    $tells = str_contains($snippet["code"], "subscribe");
    if ($tells) {
        $snippet["code"] = str_replace("OPT_READ_TIMEOUT, -1", "OPT_READ_TIMEOUT, 0.05", $snippet["code"]);
    }
    try {
        evaluate($snippet["code"], $scope);
        $redis = $scope["redis"];
        return $redis instanceof Redis ? $redis->getLastError() : null;
    } catch (Told $told) {
        return null;
    } catch (Predis\Response\ServerException $error) {
        return $error->getMessage();
    } catch (Throwable $error) {
        $timed_out = $tells && $error instanceof RedisException && str_contains($error->getMessage(), "read error");
        return $timed_out ? null : get_class($error) . ": " . $error->getMessage();
    }
}

function evaluate(string $code, array $scope): void
{
    extract($scope);
    eval("use Predis\\Command\\RawCommand; {$code}");
}

$input = json_decode(stream_get_contents(STDIN), true);
$input["port"] = parse_url($input["url"], PHP_URL_PORT);
define("SCRIPT", $input["snippets"][0]["values"]["SCRIPT"]);
require "Predis/autoload.php";
$keeper = client("PHP", $input["port"]);
$outcomes = [];
foreach ($input["snippets"] as $snippet) {
    prepare($keeper, $snippet);
    $outcomes[] = [run($snippet, $input), $keeper->rawCommand("EVAL", $input["snapshot"], "0")];
}
echo json_encode($outcomes);
