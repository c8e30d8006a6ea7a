# frozen_string_literal: true

# The import of movies (movies.rb) and pipelines by an ordinary client, without support for clusters, through one node of a
# cluster with `cluster-forward`.

require_relative 'check'
require_relative 'movies'

MOVIES_IMPORTED = 1_000
NODES = ENV.fetch('PENSTOCK_PORTS').split(',').map { |port| Redis.new(port: port, timeout: 30) }

def primaries
  NODES.select { |node| node.role.first == 'master' }
end

def empty
  primaries.each(&:flushall)
  NODES.each { |node| node.config(:resetstat) }
end

def calls_in_all(command)
  NODES.sum { |node| calls(node, command) }
end

def import(redis, way)
  empty
  send(way, redis, MOVIES_IMPORTED)
  entries = entries(MOVIES_IMPORTED)
  zscores = way == :score_for_every_prefix ? entries : MOVIES_IMPORTED
  # Replicas count the writes of their primaries, too.
  check("#{way}: ZSCOREs", calls_in_all('zscore'), zscores)
  check("#{way}: ZADDs", primaries.sum { |node| calls(node, 'zadd') }, entries)
  check("#{way}: entries of 'the'", redis.zcard(index('the')), MOVIES_IMPORTED)
  check("#{way}: first entries", redis.zrange(index('number199'), 0, 2), ['The Number199'])
  check("#{way}: data", redis.hgetall(data('The Number77')), { 'The Number77' => 'about The Number77' })
  keys = MOVIES_IMPORTED + titles(MOVIES_IMPORTED).flat_map(&:last).uniq.length
  check("#{way}: keys", primaries.sum(&:dbsize), keys)
end

# Keys on all nodes: refused in one command, and possible in a pipeline.
def read_many(redis)
  names = (1..300).map { |number| "many:#{number}" }
  redis.pipelined { |pipeline| names.each { |name| pipeline.set(name, name.upcase) } }
  check_error('MGET', "CROSSSLOT Keys in request don't hash to the same slot") { redis.mget(*names) }
  check('GETs in a pipeline', redis.pipelined { |pipeline| names.each { |name| pipeline.get(name) } }, names.map(&:upcase))
  replies = redis.multi do |transaction|
    transaction.incr('{one}counter')
    transaction.get('{one}missing')
  end
  check('a transaction', replies, [1, nil])
  check('a script', redis.eval("return redis.call('incr', KEYS[1])", keys: ['{one}counter']), 2)
end

def through(node)
  node.config(:set, 'cluster-forward', 'yes')
  %i[score_for_every_prefix score_for_every_movie writes_in_a_pipeline].each { |way| import(node, way) }
  empty
  read_many(node)
  check('forwarded commands', node.info(:stats)['cluster_forwarded_commands'].to_i > 100, true)
ensure
  node.config(:set, 'cluster-forward', 'no')
end

replica = NODES.find { |node| node.role.first == 'slave' }
[primaries.first, replica].each { |node| through(node) }
finish
