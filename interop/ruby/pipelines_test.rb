# frozen_string_literal: true

# The same work with and without a pipeline, and with commands of many keys: equal results, fewer round trips.

require_relative 'check'

PINGS = 10_000
PAIRS = 10_000
SETS = 100_000

def timed(what)
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  result = yield
  puts format('%<what>s: %<took>.2f s', what: what, took: Process.clock_gettime(Process::CLOCK_MONOTONIC) - started)
  result
end

def pings(redis)
  redis.config(:resetstat)
  replies = timed('PINGs, one by one') { Array.new(PINGS) { redis.ping } }
  check('PINGs, one by one', replies.tally, { 'PONG' => PINGS })
  replies = timed('PINGs, pipelined') { redis.pipelined { |pipeline| PINGS.times { pipeline.ping } } }
  check('PINGs, pipelined', replies.tally, { 'PONG' => PINGS })
  check('PINGs that the server saw', calls(redis, 'ping'), 2 * PINGS)
end

# The form in which a block calls the client itself, as the gem's users wrote it for years.
def pipelined_by_the_client(redis)
  replies = redis.pipelined { 1000.times { redis.ping } }
  check('pipelined without an argument', replies.tally, { 'PONG' => 1000 })
end

def single_keys(redis)
  redis.flushall
  timed("#{PAIRS} SETs") { PAIRS.times { |n| check('SET', redis.set("key#{n}", "value#{n}"), 'OK') } }
  timed("#{PAIRS} GETs") { PAIRS.times { |n| check('GET', redis.get("key#{n}"), "value#{n}") } }
end

def many_keys(redis, chunk)
  redis.flushall
  redis.config(:resetstat)
  timed("MSETs of #{chunk}") do
    (0...PAIRS).each_slice(chunk) do |part|
      check("MSET of #{chunk}", redis.mset(*part.flat_map { |n| ["key#{n}", "value#{n}"] }), 'OK')
    end
  end
  timed("MGETs of #{chunk}") do
    (0...PAIRS).each_slice(chunk) do |part|
      check("MGET of #{chunk}", redis.mget(*part.map { |n| "key#{n}" }), part.map { |n| "value#{n}" })
    end
  end
  check("calls in chunks of #{chunk}", [calls(redis, 'mset'), calls(redis, 'mget')], [PAIRS / chunk] * 2)
  check("keys in chunks of #{chunk}", redis.dbsize, PAIRS)
end

def check_sets(redis, way)
  check("#{way}: DBSIZE", redis.dbsize, SETS)
  (0...SETS).each_slice(10_000) do |part|
    check("#{way}: contents", redis.mget(part.map { |n| "key_#{n}" }), part.map { |n| "value_#{n}" })
  end
end

def hundred_thousand_sets(redis)
  redis.flushall
  timed("#{SETS} SETs, one by one") { SETS.times { |n| redis.set("key_#{n}", "value_#{n}") } }
  check_sets(redis, 'one by one')
  redis.flushall
  replies = timed("#{SETS} SETs, pipelined") do
    redis.pipelined { |pipeline| SETS.times { |n| pipeline.set("key_#{n}", "value_#{n}") } }
  end
  check('replies to the pipeline', replies.tally, { 'OK' => SETS })
  check_sets(redis, 'pipelined')
end

# INCR four times, apart and together: the replies come in the order of the requests.
def order(redis)
  redis.del('x')
  check('INCRs, one by one', Array.new(4) { redis.incr('x') }, [1, 2, 3, 4])
  check('INCRs, pipelined', redis.pipelined { |pipeline| 4.times { pipeline.incr('x') } }, [5, 6, 7, 8])
end

# Two lists filled by pipelines on connections of their own: each keeps its order.
def two_pipelines
  threads = %w[left right].map do |name|
    Thread.new { connect.pipelined { |pipeline| 20_000.times { |n| pipeline.rpush(name, n) } } }
  end
  check('lengths told to each', threads.map(&:value), [(1..20_000).to_a] * 2)
  check('lists', %w[left right].map { |name| connect.lrange(name, 0, -1).map(&:to_i) }, [(0...20_000).to_a] * 2)
end

redis = connect
pings(redis)
pipelined_by_the_client(redis)
order(redis)
single_keys(redis)
[10, 100, 1000, 10_000].each { |chunk| many_keys(redis, chunk) }
hundred_thousand_sets(redis)
redis.flushall
two_pipelines
finish
