# frozen_string_literal: true

# What docs/scaling.md says of Redis::Distributed: three servers that the client spreads keys over, and a fourth that replaces one of them.

require_relative 'check'
require 'redis/distributed'

PORTS = ENV.fetch('PENSTOCK_PORTS').split(',').map(&:to_i)
SHARDS = PORTS.first(3)
REPLICA = PORTS.last
# The spread depends on the names: `first second third` would be cut 79, 164 and 357.
NAMES = %w[one two three].freeze
KEYS = 600
PATIENCE_SECONDS = 30

# A client of these servers. Keys are spread by the ids, which are addresses where none is given.
def distributed(ports)
  nodes = NAMES.zip(ports).map { |name, port| { host: '127.0.0.1', port: port, id: name, timeout: PATIENCE_SECONDS } }
  Redis::Distributed.new(nodes)
end

def server(port)
  Redis.new(host: '127.0.0.1', port: port, timeout: PATIENCE_SECONDS)
end

def wait_until(what)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_SECONDS
  until yield
    abort "waited in vain until #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
    sleep 0.02
  end
end

def check_refused(what)
  yield
rescue Redis::Distributed::CannotDistribute
  check(what, :refused, :refused)
else
  abort "#{what} is not refused"
end

def keys
  Array.new(KEYS) { |n| "key:#{n}" }
end

def values
  Array.new(KEYS) { |n| "value:#{n}" }
end

# Every key is found, one by one and together.
def check_all_found(ring, moment)
  keys.zip(values) { |key, value| check("#{key}, #{moment}", ring.get(key), value) }
  check("MGET, #{moment}", ring.mget(*keys), values)
end

def spread(ring)
  ring.flushall
  keys.zip(values) { |key, value| check('SET', ring.set(key, value), 'OK') }
  check_all_found(ring, 'at first')
  sizes = SHARDS.map { |port| server(port).dbsize }
  check('keys on all servers', sizes.sum, KEYS)
  check('no server has less than half of its share', sizes.map { |size| size > KEYS / 6 }, [true] * 3)
  check('DBSIZE', ring.dbsize.sort, sizes.sort)
  check('KEYS', ring.keys('key:*').sort, keys.sort)
  spare = Array.new(30) { |n| "spare:#{n}" }
  spare.each { |key| ring.set(key, 1) }
  check('EXISTS', ring.exists(*spare), 30)
  check('DEL', ring.del(*spare.first(20)), 20)
  check('UNLINK', ring.unlink(*spare.last(10)), 10)
end

# The client has no pipeline of its own: each server's connection has.
def pipeline(ring)
  check_refused('a pipeline') { ring.pipelined { |pipe| pipe.get('key:1') } }
  by_server = keys.group_by { |key| ring.node_for(key) }
  found = by_server.flat_map do |node, part|
    part.zip(node.pipelined { |pipe| part.each { |key| pipe.get(key) } })
  end
  check('a pipeline to each server', found.to_h, keys.zip(values).to_h)
end

def several_keys(ring)
  check('SADD', [ring.sadd('{m}a', %w[1 2]), ring.sadd('{m}b', %w[2 3])], [2, 2])
  check('SUNIONSTORE', ring.sunionstore('{m}all', '{m}a', '{m}b'), 3)
  check('SINTER', ring.sinter('{m}a', '{m}b'), ['2'])
  check('RENAME', ring.rename('{m}all', '{m}union'), 'OK')
  check('SCARD', ring.scard('{m}union'), 3)
  check_refused('keys without a mark') { ring.sunion('a', 'b') }
  # Only at its beginning is a mark one.
  check_refused('a mark inside') { ring.sunion('a{m}', 'b{m}') }
  check_refused('MSET') { ring.mset('{m}k', 1, '{m}l', 2) }
  check_refused('MSETNX') { ring.msetnx('{m}k', 1, '{m}l', 2) }
end

# MULTI is offered after WATCH, on the marked keys or the one key that is watched.
def transaction(ring)
  check_refused('MULTI without WATCH') { ring.multi { |transaction| transaction.set('k', 1) } }
  ring.set('{t}count', 1)
  ring.watch('{t}count', '{t}log')
  check_refused('another key while one is watched') { ring.get('elsewhere') }
  value = ring.get('{t}count').to_i
  replies = ring.multi do |transaction|
    transaction.set('{t}count', value + 1)
    transaction.rpush('{t}log', value)
  end
  check('EXEC', replies, ['OK', 1])
  ring.watch('{t}count')
  server(SHARDS.find { |port| server(port).exists?('{t}count') }).set('{t}count', 7)
  check('EXEC after a change', ring.multi { |transaction| transaction.set('{t}count', 0) }, nil)
  check('what is there', [ring.get('{t}count'), ring.lrange('{t}log', 0, -1)], ['7', ['1']])
end

def scripts(ring)
  script = "redis.call('set', KEYS[1], ARGV[1]) return {redis.call('incr', KEYS[1]), redis.call('incr', KEYS[2])}"
  check('EVAL', ring.eval(script, ['{s}a', '{s}b'], [4]), [5, 1])
  sums = ring.script(:load, script)
  check('SCRIPT LOAD on every server', [sums.length, sums.uniq.length], [3, 1])
  check('EVALSHA', ring.evalsha(sums[0], ['{s}a', '{s}b'], [4]), [5, 2])
  check_refused('EVAL of unmarked keys') { ring.eval(script, %w[a b], [4]) }
end

def blocking(ring)
  check('BLPOP of nothing', ring.blpop('{q}one', timeout: 1), nil)
  waiter = Thread.new { distributed(SHARDS).blpop('{q}one', '{q}two', timeout: PATIENCE_SECONDS) }
  wait_until('BLPOP waits') { SHARDS.any? { |port| server(port).info['blocked_clients'] == '1' } }
  check('RPUSH', ring.rpush('{q}two', 'job'), 1)
  check('BLPOP', waiter.value, ['{q}two', 'job'])
  check_refused('BLPOP of unmarked keys') { ring.blpop('one', 'two', timeout: 1) }
end

# The client has no methods for streams: the connection of the key's server has.
def stream(ring)
  check('XADD', ring.respond_to?(:xadd), false)
  node = ring.node_for('stream')
  id = node.xadd('stream', { 'field' => 'value' })
  check('XREAD', node.xread('stream', '0'), { 'stream' => [[id, { 'field' => 'value' }]] })
  node.xgroup(:create, 'stream', 'group', '0')
  check('XREADGROUP', node.xreadgroup('group', 'me', 'stream', '>'), { 'stream' => [[id, { 'field' => 'value' }]] })
  check('XACK', node.xack('stream', 'group', id), 1)
  check('TYPE', ring.type('stream'), 'stream')
end

def publish_subscribe(ring)
  received = Queue.new
  subscribed = Queue.new
  listener = Thread.new do
    distributed(SHARDS).then do |own|
      own.subscribe('{c}one', '{c}two') do |on|
        on.subscribe { |channel, _| subscribed << channel }
        on.message { |channel, message| received << [channel, message] and own.unsubscribe if message }
      end
    end
  end
  check('SUBSCRIBE', [subscribed.pop, subscribed.pop], ['{c}one', '{c}two'])
  check('PUBLISH', ring.publish('{c}two', 'hello'), 1)
  listener.join
  check('the message', received.pop, ['{c}two', 'hello'])
  check('PSUBSCRIBE', begin; ring.psubscribe('c*'); rescue NotImplementedError; :none; end, :none)
end

# The keys of a server that is away are errors, not misses.
def check_away(ring)
  away, others = keys.partition { |key| ring.node_for(key).id == NAMES[1] }
  check('GET of a server that is away', away.map { |key| error_of { ring.get(key) } }.uniq, [Redis::CannotConnectError])
  check('GET of the others', others.map { |key| ring.get(key) }.count(nil), 0)
end

def error_of
  yield
  nil
rescue Redis::BaseConnectionError => e
  e.class
end

# The second server is shut down, and its replica takes its id: no key moves.
def replacement(away_ring)
  old = server(SHARDS[1])
  new = server(REPLICA)
  new.replicaof('127.0.0.1', SHARDS[1])
  wait_until('the link is up') { new.info['master_link_status'] == 'up' }
  wait_until('the replica has all') { new.info['slave_repl_offset'].to_i >= old.info['master_repl_offset'].to_i }
  old.shutdown
  wait_until('the server is away') { error_of { server(SHARDS[1]).ping } }
  check_away(away_ring)
  new.replicaof('no', 'one')
  ring = distributed([SHARDS[0], REPLICA, SHARDS[2]])
  check_all_found(ring, 'after the replacement')
  keys.each { |key| check('SET after the replacement', ring.set(key, ring.get(key)), 'OK') }
  sizes = [SHARDS[0], REPLICA, SHARDS[2]].map { |port| server(port).keys('key:*').length }
  check('no key is on two servers', sizes.sum, KEYS)
  # Without ids, the addresses are what keys are spread by.
  check('the id of a node', Redis::Distributed.new(["redis://127.0.0.1:#{REPLICA}"]).nodes[0].id, "redis://127.0.0.1:#{REPLICA}/0")
end

ring = distributed(SHARDS)
spread(ring)
pipeline(ring)
several_keys(ring)
transaction(ring)
scripts(ring)
blocking(ring)
stream(ring)
publish_subscribe(ring)
replacement(ring)
finish
