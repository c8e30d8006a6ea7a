# frozen_string_literal: true

# The gem's methods: one table of calls, each made on its own, in a pipeline and in MULTI/EXEC; then what a table can't
# hold: errors, transactions that are watched, waiting, subscriptions, scans, threads.

require_relative 'check'

# Each: method, arguments (a Hash at the end holds keywords), reply.
CALLS = [
  [:set, 's', '1', 'OK'],
  [:set, 's', '2', { nx: true }, false],
  [:set, 's', '2', { xx: true, ex: 100 }, true],
  [:ttl, 's', 100],
  [:persist, 's', true],
  [:getset, 's', '5', '2'],
  [:incr, 's', 6],
  [:incrby, 's', 4, 10],
  [:decrby, 's', 3, 7],
  [:incrbyfloat, 's', 0.5, 7.5],
  [:append, 's', 'abc', 6],
  [:strlen, 's', 6],
  [:getrange, 's', -3, -1, 'abc'],
  [:setrange, 's', 0, 'X', 6],
  [:get, 's', 'X.5abc'],
  [:getdel, 's', 'X.5abc'],
  [:mset, 'a', 1, 'b', 2, 'OK'],
  [:mget, 'a', 'b', 'none', ['1', '2', nil]],
  [:mapped_mget, 'a', 'none', { 'a' => '1', 'none' => nil }],
  [:msetnx, 'a', 1, 'c', 2, false],
  [:setnx, 'a', 1, false],
  [:setex, 'a', 10, 'v', 'OK'],
  [:psetex, 'a', 10_000, 'v', 'OK'],
  [:exists?, 'a', true],
  [:exists, 'a', 'b', 'none', 2],
  [:expire, 'a', 100, true],
  [:expireat, 'none', 32_503_680_000, false],
  [:type, 'a', 'string'],
  [:rename, 'a', 'c', 'OK'],
  [:renamenx, 'b', 'c', false],
  [:object, 'encoding', 'b', 'int'],
  [:touch, 'b', 'c', 2],
  [:unlink, 'b', 'c', 2],
  [:keys, '*', []],
  [:hset, 'h', 'f', 'v', 'g', 1, 2],
  [:hsetnx, 'h', 'f', 'x', false],
  [:hget, 'h', 'f', 'v'],
  [:hmget, 'h', 'f', 'none', ['v', nil]],
  [:hgetall, 'h', { 'f' => 'v', 'g' => '1' }],
  [:hincrby, 'h', 'g', 41, 42],
  [:hincrbyfloat, 'h', 'g', 0.5, 42.5],
  [:hexists, 'h', 'f', true],
  [:hkeys, 'h', %w[f g]],
  [:hvals, 'h', ['v', '42.5']],
  [:hlen, 'h', 2],
  [:hdel, 'h', 'f', 'none', 1],
  [:rpush, 'l', %w[a b c], 3],
  [:lpush, 'l', 'z', 4],
  [:lrange, 'l', 0, -1, %w[z a b c]],
  [:lindex, 'l', 1, 'a'],
  [:linsert, 'l', 'BEFORE', 'b', 'x', 5],
  [:lset, 'l', 0, 'y', 'OK'],
  [:lrem, 'l', 0, 'x', 1],
  [:ltrim, 'l', 0, 2, 'OK'],
  [:lpop, 'l', 'y'],
  [:rpop, 'l', 2, %w[b a]],
  [:llen, 'l', 0],
  [:rpush, 'l', %w[a b], 2],
  [:rpoplpush, 'l', 'm', 'b'],
  [:lmove, 'l', 'm', 'LEFT', 'RIGHT', 'a'],
  [:blpop, 'm', { timeout: 1 }, %w[m b]],
  [:brpop, 'm', { timeout: 1 }, %w[m a]],
  [:sadd, 't', %w[a b c], 3],
  [:sadd?, 't', 'a', false],
  [:sismember, 't', 'a', true],
  [:smismember, 't', 'a', 'x', [true, false]],
  [:scard, 't', 3],
  [:sadd, 'u', %w[b x], 2],
  [:sinter, 't', 'u', ['b']],
  [:sdiffstore, 'd', 't', 'u', 2],
  [:sunionstore, 'd', 't', 'u', 4],
  [:smove, 't', 'u', 'a', true],
  [:srem, 't', %w[b none], 1],
  [:spop, 't', 'c'],
  [:zadd, 'z', 1, 'a', true],
  [:zadd, 'z', [[2.5, 'b'], [3, 'c']], 2],
  [:zadd, 'z', 9, 'a', { nx: true }, false],
  [:zadd, 'z', 2, 'a', { incr: true }, 3.0],
  [:zscore, 'z', 'b', 2.5],
  [:zscore, 'z', 'none', nil],
  [:zmscore, 'z', 'a', 'none', [3.0, nil]],
  [:zincrby, 'z', 'inf', 'c', Float::INFINITY],
  [:zrange, 'z', 0, -1, { with_scores: true }, [['b', 2.5], ['a', 3.0], ['c', Float::INFINITY]]],
  [:zrevrange, 'z', 0, 0, ['c']],
  [:zrangebyscore, 'z', '-inf', '(3', { limit: [0, 5] }, ['b']],
  [:zcount, 'z', 3, '+inf', 2],
  [:zrank, 'z', 'a', 1],
  [:zrevrank, 'z', 'none', nil],
  [:zcard, 'z', 3],
  [:zunionstore, 'w', %w[z z], { weights: [1, 2], aggregate: 'max' }, 3],
  [:zscore, 'w', 'b', 5.0],
  [:zpopmin, 'z', ['b', 2.5]],
  [:zpopmax, 'z', 2, [['c', Float::INFINITY], ['a', 3.0]]],
  [:zremrangebyscore, 'w', 0, 5, 1],
  [:zrem, 'w', 'a', true],
  [:echo, 'x', 'x'],
  [:ping, 'PONG'],
  [:flushdb, 'OK']
].freeze

# Splits a row into method, arguments, keywords and reply.
def row(entry)
  name, *rest = entry
  reply = rest.pop
  keywords = rest.last.is_a?(Hash) ? rest.pop : {}
  [name, rest, keywords, reply]
end

def call(target, entry)
  name, arguments, keywords, = row(entry)
  target.public_send(name, *arguments, **keywords)
end

def check_replies(way, replies)
  check("#{way}: replies", replies.length, CALLS.length)
  CALLS.zip(replies) { |entry, reply| check("#{way}: #{entry[0..-2].inspect}", reply, row(entry).last) }
end

def table(redis)
  redis.flushall
  check_replies('one by one', CALLS.map { |entry| call(redis, entry) })
  check_replies('pipelined', redis.pipelined { |pipeline| CALLS.each { |entry| call(pipeline, entry) } })
  check_replies('multi', redis.multi { |transaction| CALLS.each { |entry| call(transaction, entry) } })
  nested = redis.pipelined do |pipeline|
    pipeline.echo('before')
    pipeline.multi { |transaction| 3.times { transaction.incr('nested') } }
    pipeline.echo('after')
  end
  check('multi in a pipeline', nested, ['before', 'OK', 'QUEUED', 'QUEUED', 'QUEUED', [1, 2, 3], 'after'])
end

def errors(redis)
  redis.set('s', 'text')
  wrong_type = 'WRONGTYPE Operation against a key holding the wrong kind of value'
  check_error('wrong type', wrong_type) { redis.lpush('s', 1) }
  check_error('not a number', 'ERR value is not an integer or out of range') { redis.incr('s') }
  # The gem drops the blank that ends the server's text.
  check_error('unknown', "ERR unknown command 'nosuch', with args beginning with: 'a'") { redis.call('nosuch', 'a') }
  check_error('arity', "ERR wrong number of arguments for 'get' command") { redis.call('get') }
  check_error('in mid-pipeline', wrong_type) do
    redis.pipelined do |pipeline|
      pipeline.set('before', 1)
      pipeline.lpush('s', 1)
      pipeline.set('after', 1)
    end
  end
  check('what follows an error runs', redis.mget('before', 'after'), %w[1 1])
  # The gem raises the first error reply, which is the refusal to queue.
  check_error('refused while queued', "ERR wrong number of arguments for 'get' command") do
    redis.multi { |transaction| transaction.set('after', 2) && transaction.call('get') }
  end
  check('nothing of it ran', redis.get('after'), '1')
end

def transactions(redis)
  redis.set('watched', 1)
  other = connect
  done = redis.watch('watched') { redis.multi { |transaction| transaction.incr('watched') } }
  check('EXEC', done, [2])
  done = redis.watch('watched') do
    other.set('watched', 10)
    redis.multi { |transaction| transaction.incr('watched') }
  end
  check('EXEC after a change', [done, redis.get('watched')], [nil, '10'])
  redis.watch('watched') { redis.unwatch }
  check('DISCARD', begin
    redis.multi { |transaction| transaction.set('watched', 11) && raise('changed my mind') }
  rescue RuntimeError
    redis.get('watched')
  end, '10')
end

def waiting(redis)
  redis.flushall
  waiter = Thread.new { connect.blpop('queue', timeout: 20) }
  sleep(0.005) while redis.info(:clients)['blocked_clients'] == '0'
  redis.pipelined { |pipeline| pipeline.rpush('queue', %w[first second]) }
  check('BLPOP is woken', waiter.value, %w[queue first])
  check('the rest stays', redis.lrange('queue', 0, -1), ['second'])
  check('BRPOP times out', redis.brpop('none', timeout: 0.05), nil)
end

def subscriptions(redis)
  got = []
  subscribed = Queue.new
  reader = Thread.new do
    connect.psubscribe('news.*', 'weather') do |on|
      on.psubscribe { |_, total| subscribed << total }
      on.pmessage do |pattern, channel, message|
        got << [pattern, channel, message]
        Thread.exit if message == 'stop'
      end
    end
  end
  2.times { subscribed.pop }
  counts = redis.pipelined { |pipeline| 1000.times { |n| pipeline.publish('news.today', n) } }
  check('receivers', counts.tally, { 1 => 1000 })
  redis.publish('news.last', 'stop')
  reader.join(20) || abort('the last message never came')
  check('messages', got.map(&:last), [*(0...1000).map(&:to_s), 'stop'])
  check('the last one', got.last, ['news.*', 'news.last', 'stop'])
  unsubscribing
end

def unsubscribing
  events = []
  subscriber = connect
  subscriber.subscribe('one', 'two') do |on|
    on.subscribe do |channel, total|
      events << [:subscribe, channel, total]
      subscriber.unsubscribe if total == 2
    end
    on.unsubscribe { |channel, total| events << [:unsubscribe, channel, total] }
  end
  check('subscribe', events.first(2), [[:subscribe, 'one', 1], [:subscribe, 'two', 2]])
  check('unsubscribe', events.drop(2).map(&:last), [1, 0])
  check('then an ordinary connection again', subscriber.ping, 'PONG')
end

def scans(redis)
  redis.flushall
  names = (1..3000).map { |n| "name:#{n}" }
  redis.mapped_mset(names.to_h { |name| [name, name] })
  check('scan_each', redis.scan_each(match: 'name:*').to_a.uniq.sort, names.sort)
  redis.sadd('set', names)
  check('sscan_each', redis.sscan_each('set').to_a.uniq.sort, names.sort)
  redis.mapped_hmset('hash', names.to_h { |name| [name, name] })
  check('hscan_each', redis.hscan_each('hash').to_h.length, names.length)
  redis.zadd('zset', names.map { |name| [1, name] })
  check('zscan_each', redis.zscan_each('zset', match: 'name:1*').map(&:first).uniq.length,
        names.count { |name| name.start_with?('name:1') })
end

def connections(redis)
  check('one client, many threads', Array.new(8) { Thread.new { 200.times { redis.incr('n') } } }.each(&:join).length, 8)
  check('their sum', redis.get('n'), '1600')
  check('SELECT', connect(db: 5).set('only in 5', 1), 'OK')
  check('databases are apart', [redis.exists?('only in 5'), connect(db: 5).dbsize], [false, 1])
  local = Redis.new(path: ENV.fetch('PENSTOCK_SOCKET'))
  check('the Unix socket', local.pipelined { |pipeline| 3.times { pipeline.ping } }, ['PONG'] * 3)
  named = connect
  named.client(:setname, 'named')
  check('CLIENT SETNAME', redis.client(:list).count { |entry| entry['name'] == 'named' }, 1)
  check('INFO', redis.info['role'], 'master')
  check('CONFIG', redis.config(:get, 'port'), { 'port' => ENV.fetch('PENSTOCK_PORT') })
  blob = Random.new(1).bytes(5_000_000)
  check('5 MB of any bytes', redis.pipelined { |p| p.set('blob', blob) && p.get('blob') }.last.b == blob, true)
  check('QUIT', redis.quit, 'OK')
end

redis = connect
%i[table errors transactions waiting subscriptions scans connections].each { |part| send(part, redis) }
finish
