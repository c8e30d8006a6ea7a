# frozen_string_literal: true

# The three ways to import movies (movies.rb), each counted by INFO commandstats. MONITOR, too, must have seen every
# command of the first way, in its order.

require 'set'
require_relative 'check'
require_relative 'movies'

# The ways without a pipeline get fewer movies, because a busy machine may take a millisecond for each round trip.
MOVIES_ONE_BY_ONE = 2_000
# A way under MONITOR.
MOVIES_MONITORED = 1_000
# The data that every way must leave.
def check_contents(redis, way, movies)
  check("#{way}: entries of 'the'", redis.zcard(index('the')), movies)
  check("#{way}: first entries", redis.zrange(index('number199'), 0, 2),
        ['The Number199', 'The Number1990', 'The Number1991'])
  check("#{way}: data", redis.hgetall(data('The Number77')), { 'The Number77' => 'about The Number77' })
  keys = redis.scan_each(match: 'movies:*', count: 1000).to_a.uniq.length
  check("#{way}: keys", keys, movies + titles(movies).flat_map(&:last).uniq.length)
end

def import(redis, way, movies)
  redis.flushall
  redis.config(:resetstat)
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  send(way, redis, movies)
  took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
  expected = way == :score_for_every_prefix ? entries(movies) : movies
  check("#{way}: ZSCOREs", calls(redis, 'zscore'), expected)
  check("#{way}: ZADDs", calls(redis, 'zadd'), entries(movies))
  check("#{way}: HSETs", calls(redis, 'hset'), movies)
  check_contents(redis, way, movies)
  puts format('%<way>s: %<zscore>d ZSCOREs, %<took>.1f s', way: way, zscore: expected, took: took)
end

# Runs the block while another connection watches; returns the lines of commands on movies.
def monitored(redis)
  lines = []
  ready = Queue.new
  watcher = Thread.new do
    connect.monitor do |line|
      ready << true if line == 'OK'
      break if line.include?('"the end"')

      lines << line if line.include?('movies:')
    end
  end
  ready.pop
  yield
  redis.echo('the end')
  watcher.join(60) || abort('MONITOR never saw the end')
  lines
end

def check_monitor(redis)
  redis.flushall
  lines = monitored(redis) { score_for_every_prefix(redis, MOVIES_MONITORED) }
  check('MONITOR: ZSCOREs', lines.count { |line| line.include?(' "zscore" ') }, entries(MOVIES_MONITORED))
  shape = /\A\d{10}\.\d{6} \[0 127\.0\.0\.1:\d+\] ("[a-z]+" .*)\z/
  check('MONITOR: the form of a line', lines.grep_v(shape), [])
  check('MONITOR: order', lines.last(3).map { |line| line[shape, 1] },
        ['"zscore" "movies:index:number1000" "The Number1000"',
         '"zadd" "movies:index:number1000" "0" "The Number1000"',
         '"hset" "movies:data:TheNumber1000" "The Number1000" "about The Number1000"'])
end

# A score that is there survives another import, in each way; inside a pipeline it can't be read.
def check_scores(redis)
  title = 'The Number10000'
  redis.pipelined { |pipeline| PREFIXES[title].each { |prefix| pipeline.zadd(index(prefix), 10, title) } }
  writes_in_a_pipeline(redis, MOVIES)
  scores = PREFIXES[title].map { |prefix| redis.zscore(index(prefix), title) }
  check('scores one by one', scores, [10.0] * PREFIXES[title].length)
  futures = []
  replies = redis.pipelined do |pipeline|
    PREFIXES[title].each { |prefix| futures << pipeline.zscore(index(prefix), title) }
    begin
      futures.first.value
      abort('a score was there before its pipeline ran')
    rescue Redis::FutureNotReady
      check('a future is not ready', futures.first.class, Redis::Future)
    end
  end
  check('scores of a pipeline', replies, scores)
  check('scores by their futures', futures.map(&:value), scores)
end

redis = connect
check('entries in all', entries(MOVIES), 108_894)
%i[score_for_every_prefix score_for_every_movie].each { |way| import(redis, way, MOVIES_ONE_BY_ONE) }
import(redis, :writes_in_a_pipeline, MOVIES)
check_scores(redis)
check_monitor(redis)
finish
