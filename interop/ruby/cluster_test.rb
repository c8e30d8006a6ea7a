# frozen_string_literal: true

# redis-rb with its own cluster support, which version 4.8 of Debian's package contains. redis-rb 5 has it in a gem of its own, which Debian
# doesn't package. A pipeline of this version has one node. See ../cluster.py.

require_relative 'check'
require 'socket'

PORTS = ENV.fetch('PENSTOCK_PORTS').split(',').map(&:to_i)
KEYS = 200
# Commands of one pipeline.
DEPTH = 2000
MOVING = 500
PATIENCE_SECONDS = 60
CROSS_SLOT = "CROSSSLOT Keys in request don't hash to the same slot"

def cluster(**options)
  Redis.new(cluster: PORTS.first(2).map { |port| "redis://127.0.0.1:#{port}" }, **options)
end

# Connects with the code of docs/cluster.md, to this cluster's ports.
def pages_client
  code = File.read("#{__dir__}/../../docs/cluster.md")[/^```ruby\n(.*?)^```/m, 1]
  binding.eval("#{code.sub('7100', PORTS[0].to_s).sub('7101', PORTS[1].to_s)}; client")
end

# Sends a request to the cluster's harness, and returns its answer.
def event(request)
  TCPSocket.open('127.0.0.1', ENV.fetch('PENSTOCK_EVENTS').to_i) do |socket|
    socket.puts(request)
    socket.gets.strip
  end
end

# Repeats the block until the event is over.
def during(request)
  answer = Thread.new { event(request) }
  yield
  yield while answer.alive?
  check(request, answer.value, 'ok')
end

# Repeats the block until it succeeds, as an application does while a shard has no primary.
def until_done
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_SECONDS
  begin
    yield
  rescue Redis::BaseError
    raise if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

    sleep 0.05
    retry
  end
end

def until_equal(what, expected)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_SECONDS
  sleep 0.01 until (found = yield) == expected || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
  check(what, found, expected)
end

def single_commands(redis)
  KEYS.times { |number| check('SET', redis.set("rb:#{number}", number), 'OK') }
  KEYS.times { |number| check('GET', redis.get("rb:#{number}"), number.to_s) }
  check('DBSIZE of all nodes', redis.dbsize >= KEYS, true)
end

def pipelines(redis)
  4.times do |tag|
    replies = redis.pipelined do |pipe|
      DEPTH.times do |number|
        pipe.set("{rb:#{tag}}#{number}", number)
        pipe.incr("{rb:#{tag}}#{number}")
        pipe.get("{rb:#{tag}}#{number}")
      end
    end
    check('a pipeline', replies, (1..DEPTH).flat_map { |number| ['OK', number, number.to_s] })
  end
  redis.pipelined { |pipe| 2.times { |number| pipe.get("rb:#{number}") } }
rescue Redis::Cluster::CrossSlotPipeliningError
  check('a pipeline over several slots is refused by the client', true, true)
end

def one_slot(redis)
  replies = redis.multi do |transaction|
    transaction.set('{rb}a', 1)
    transaction.incr('{rb}a')
  end
  check('MULTI', replies, ['OK', 2])
  check('MSET', redis.mset('{rb}b', 1, '{rb}c', 2), 'OK')
  check('MGET', redis.mget('{rb}c', '{rb}b', '{rb}none'), ['2', '1', nil])
  check_error('CROSSSLOT', CROSS_SLOT) { redis.sunion('rb:1', 'rb:2') }
end

def scripts(redis)
  script = "return {KEYS[1], redis.call('INCRBY', KEYS[1], ARGV[1])}"
  sha = redis.script(:load, script)
  30.times do |number|
    check('EVAL', redis.eval(script, ["rb:s:#{number}"], [number]), ["rb:s:#{number}", number])
    check('EVALSHA', redis.evalsha(Array(sha).first, ["rb:s:#{number}"], [1]), ["rb:s:#{number}", number + 1])
  end
end

def subscriptions(redis)
  heard = Queue.new
  Thread.new do
    # The subscription ends with its node.
    Thread.current.report_on_exception = false
    cluster.subscribe_with_timeout(PATIENCE_SECONDS, 'rb:news') do |on|
      on.message { |channel, message| heard << [channel, message] }
    end
  end
  until_equal('a message', %w[rb:news hello]) do
    redis.publish('rb:news', 'hello')
    sleep 0.02
    heard.empty? ? nil : heard.pop
  end
end

def replicas
  reader = cluster(replica: true)
  KEYS.times { |number| until_equal('GET from a replica', number.to_s) { reader.get("rb:#{number}") } }
  reader.close
end

# Sends INCR. After MOVED this version asks one node for the slots. It gives up if that node does not know the new primary yet, and after
# the third MOVED. The refused command has not run, so it is sent again.
def incr(redis, key)
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_SECONDS
  begin
    redis.incr(key)
  rescue Redis::Cluster::Node::ReloadNeeded, Redis::CommandError => error
    raise if error.is_a?(Redis::CommandError) && !error.message.start_with?('MOVED')
    raise if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

    sleep 0.01
    retry
  end
end

# Increases each counter once.
def increase(redis, keys, rounds)
  rounds[0] += 1
  check('INCR', keys.map { |key| incr(redis, key) }, [rounds[0]] * keys.size)
end

def reshard(redis)
  tag = event('tag')
  keys = Array.new(MOVING) { |number| "{#{tag}}rb:#{number}" }
  rounds = [0]
  increase(redis, keys, rounds)
  during('reshard') { increase(redis, keys, rounds) }
  check('counters', keys.map { |key| redis.get(key) }, [rounds[0].to_s] * keys.size)
  check('a pipeline after the move', redis.pipelined { |pipe| keys.each { |key| pipe.get(key) } }, [rounds[0].to_s] * keys.size)
  moved, asked = event('redirects').split.map(&:to_i)
  check("#{moved} MOVED and #{asked} ASK were followed", moved.positive? && asked.positive?, true)
end

def failover(redis)
  keys = Array.new(KEYS) { |number| "rb:f:#{number}" }
  rounds = [0]
  during('failover') { increase(redis, keys, rounds) }
  3.times { increase(redis, keys, rounds) }
  check('counters', keys.map { |key| redis.get(key) }, [rounds[0].to_s] * keys.size)
end

def kill(redis)
  check('kill', event('kill'), 'ok')
  500.times { |number| until_done { check('SET after a kill', redis.set("rb:k:#{number}", number), 'OK') } }
  500.times { |number| check('GET after a kill', redis.get("rb:k:#{number}"), number.to_s) }
end

redis = cluster
single_commands(redis)
pipelines(redis)
one_slot(redis)
scripts(redis)
subscriptions(redis)
check("SET by the page's client", pages_client.set('rb:page', 1), 'OK')
replicas
reshard(redis)
failover(redis)
kill(redis)
KEYS.times { |number| check('GET at the end', redis.get("rb:#{number}"), number.to_s) }
finish
