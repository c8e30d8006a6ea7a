<?php
// The PHP applications of the advisor's corpus: `corpus.php NAME` runs one of them. See corpus.py for its environment, and corpus.tsv
// for what each does right or wrong.

const THINK_US = 20000;

$rounds = (int) (getenv('ROUNDS') ?: 100);

function connected(string $variable, string $name): Redis
{
    $url = parse_url(getenv($variable));
    $redis = new Redis();
    $redis->connect($url['host'], $url['port']);
    $redis->rawCommand('CLIENT', 'SETNAME', $name);
    return $redis;
}

// What is prepared is no part of the application: it is told by this name.
$direct = connected('DIRECT_URL', 'setup');

function numbered(string $prefix, int $rounds): array
{
    $all = [];
    for ($n = 0; $n < $rounds; $n++) {
        $all["$prefix:$n"] = "$prefix value $n";
    }
    return $all;
}

$applications = [
    // A list of posts, then the author of each.
    'php-author-of-each-post' => function () use ($direct, $rounds) {
        $pipe = $direct->multi(Redis::PIPELINE);
        for ($n = 0; $n < $rounds; $n++) {
            $pipe->rPush('posts', $n)->hSet("author:$n", 'name', "writer $n");
        }
        $pipe->exec();
        $redis = connected('PENSTOCK_URL', 'blog');
        foreach ($redis->lRange('posts', 0, -1) as $post) {
            $redis->hGet("author:$post", 'name');
        }
    },
    'php-author-of-each-post-rewritten' => function () use ($rounds) {
        $redis = connected('PENSTOCK_URL', 'blog');
        $pipe = $redis->multi(Redis::PIPELINE);
        for ($n = 0; $n < $rounds; $n++) {
            $pipe->hGet("author:$n", 'name');
        }
        $pipe->exec();
    },
    'php-cache-of-each-product' => function () use ($direct, $rounds) {
        $direct->mSet(numbered('product', $rounds));
        $redis = connected('PENSTOCK_URL', 'shop');
        for ($n = 0; $n < $rounds; $n++) {
            $redis->get("product:$n");
        }
    },
    'php-cache-of-all-products' => function () use ($direct, $rounds) {
        $direct->mSet(numbered('product', $rounds));
        $redis = connected('PENSTOCK_URL', 'shop');
        $redis->mGet(array_keys(numbered('product', $rounds)));
    },
    'php-import-row-by-row' => function () use ($rounds) {
        $redis = connected('PENSTOCK_URL', 'import');
        foreach (numbered('row', $rounds) as $key => $value) {
            $redis->set($key, $value);
        }
    },
    'php-import-at-once' => function () use ($rounds) {
        connected('PENSTOCK_URL', 'import')->mSet(numbered('row', $rounds));
    },
    'php-flag-for-each-item' => function () use ($direct, $rounds) {
        $direct->set('flag:new-checkout', 'enabled');
        $redis = connected('PENSTOCK_URL', 'shop');
        for ($n = 0; $n < $rounds; $n++) {
            $redis->get('flag:new-checkout');
        }
    },
    'php-counter-by-hand' => function () use ($direct, $rounds) {
        $direct->set('stock', 1000);
        $redis = connected('PENSTOCK_URL', 'shop');
        for ($n = 0; $n < $rounds; $n++) {
            $redis->set('stock', (int) $redis->get('stock') + 1);
        }
    },
    // phpredis sends MULTI, each command and EXEC by itself, and waits for each.
    'php-transaction-per-account' => function () use ($rounds) {
        $redis = connected('PENSTOCK_URL', 'bank');
        for ($n = 0; $n < $rounds; $n++) {
            $redis->multi()->incrBy("account:$n", 5)->expire("account:$n", 3600)->exec();
        }
    },
    // A request of a user reads and writes a session, and does other work.
    'php-sessions' => function () {
        $redis = connected('PENSTOCK_URL', 'web');
        for ($n = 0; $n < 40; $n++) {
            $key = 'PHPREDIS_SESSION:' . $n % 4;
            $redis->get($key);
            usleep(THINK_US);
            $redis->setEx($key, 3600, "user $n");
        }
    },
    'php-polled-queue' => function () {
        $redis = connected('PENSTOCK_URL', 'mailer');
        for ($n = 0; $n < 80; $n++) {
            $redis->rPop('mail');
            usleep(THINK_US);
        }
    },
    'php-waiting-for-a-queue' => function () use ($direct) {
        for ($n = 0; $n < 40; $n++) {
            $direct->lPush('mail', "letter $n");
        }
        $redis = connected('PENSTOCK_URL', 'mailer');
        for ($n = 0; $n < 40; $n++) {
            $redis->brPop(['mail'], 5);
            usleep(THINK_US);
        }
    },
    // Each line of the log names a user who is not known before.
    'php-requests-of-users' => function () use ($direct, $rounds) {
        $direct->mSet(numbered('user', $rounds));
        $redis = connected('PENSTOCK_URL', 'web');
        for ($n = 0; $n < 60; $n++) {
            $redis->get('user:' . $n * 7919 % $rounds);
            usleep(THINK_US);
        }
    },
    // The price of each line of a cart, and the stock that is left.
    'php-cart-line-by-line' => function () use ($direct, $rounds) {
        $pipe = $direct->multi(Redis::PIPELINE);
        for ($n = 0; $n < $rounds; $n++) {
            $pipe->hMSet("article:$n", ['price' => 100 + $n * 7 % 31, 'stock' => 900]);
        }
        $pipe->exec();
        $redis = connected('PENSTOCK_URL', 'cart');
        for ($n = 0, $sum = 0; $n < $rounds; $n++) {
            $sum += $redis->hGet("article:$n", 'price');
            $redis->hIncrBy("article:$n", 'stock', -1);
        }
    },
];

$applications[$argv[1]]();
