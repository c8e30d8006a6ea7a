# frozen_string_literal: true

# The Ruby applications of the advisor's corpus: `corpus.rb NAME` runs one of them. See corpus.py for its environment, and corpus.tsv
# for what each does right or wrong.

require 'redis'
require 'set'

URL = ENV.fetch('PENSTOCK_URL')
# What is prepared is no part of the application: it is told by this name. redis-rb 4 sends each command of a pipeline by itself.
DIRECT = Redis.new(url: ENV.fetch('DIRECT_URL'), id: 'setup')
ROUNDS = Integer(ENV.fetch('ROUNDS', '100'))
THINK_S = 0.02

# How many movies: the article has 10,000.
MOVIES = Integer(ENV.fetch('MOVIES', '30'))
TITLES = (1..MOVIES).map { |number| "The Number#{number}" }

def prefixes(title)
  title.downcase.split.flat_map { |word| (2..word.length).map { |length| word[0, length] } }
end

def index(prefix)
  "movies:index:#{prefix}"
end

def data(title)
  "movies:data:#{title.delete(' ')}"
end

# The article's script: the score of a movie is read for each of its prefixes.
def movies_score_for_every_prefix
  redis = Redis.new(url: URL)
  TITLES.each do |title|
    prefixes(title).each do |prefix|
      score = redis.zscore(index(prefix), title).to_i
      redis.zadd(index(prefix), score, title)
    end
    redis.hset(data(title), title, "about #{title}")
  end
end

# The article's first remedy: 98,840 commands less.
def movies_score_for_every_movie
  redis = Redis.new(url: URL)
  TITLES.each do |title|
    all = prefixes(title)
    score = redis.zscore(index(all.first), title).to_i
    all.each { |prefix| redis.zadd(index(prefix), score, title) }
    redis.hset(data(title), title, "about #{title}")
  end
end

def movies_writes_in_a_pipeline
  redis = Redis.new(url: URL)
  TITLES.each do |title|
    all = prefixes(title)
    score = redis.zscore(index(all.first), title).to_i
    redis.pipelined do |pipeline|
      all.each { |prefix| pipeline.zadd(index(prefix), score, title) }
      pipeline.hset(data(title), title, "about #{title}")
    end
  end
end

def movies_in_two_pipelines
  redis = Redis.new(url: URL)
  scores = redis.pipelined { |pipeline| TITLES.each { |title| pipeline.zscore(index(prefixes(title).first), title) } }
  redis.pipelined do |pipeline|
    TITLES.zip(scores).each do |title, score|
      prefixes(title).each { |prefix| pipeline.zadd(index(prefix), score.to_i, title) }
      pipeline.hset(data(title), title, "about #{title}")
    end
  end
end

# As ActiveRecord does it without `includes`, with what belongs to each post in a hash.
def rails_n_plus_one
  DIRECT.pipelined { |pipe| ROUNDS.times { |n| pipe.hset("author:#{n}", 'name', "name #{n}") } }
  DIRECT.rpush('posts', (0...ROUNDS).to_a)
  redis = Redis.new(url: URL)
  redis.lrange('posts', 0, -1).map { |post| redis.hget("author:#{post}", 'name') }
end

def rails_fragment_cache
  DIRECT.mset(ROUNDS.times.flat_map { |n| ["views/post/#{n}", "<p>#{n}</p>"] })
  redis = Redis.new(url: URL)
  ROUNDS.times.map { |n| redis.get("views/post/#{n}") }
end

def rails_fragment_cache_rewritten
  DIRECT.mset(ROUNDS.times.flat_map { |n| ["views/post/#{n}", "<p>#{n}</p>"] })
  Redis.new(url: URL).mget(ROUNDS.times.map { |n| "views/post/#{n}" })
end

def rails_session_requests
  redis = Redis.new(url: URL)
  40.times do |n|
    key = "session:#{n % 4}"
    redis.get(key)
    redis.setex(key, 3600, "user #{n}")
    sleep THINK_S
  end
end

def sidekiq
  require 'sidekiq'
  Sidekiq.configure_client { |config| config.redis = { url: URL } }
  Class.new { include Sidekiq::Job }.tap { |job| Object.const_set(:CorpusJob, job) }
end

def sidekiq_push_bulk
  job = sidekiq
  job.perform_bulk((1..1000).map { |n| [n] })
end

# Sidekiq sends each job as a transaction in one piece; between two of them a web server has other requests.
def sidekiq_push_from_requests
  job = sidekiq
  40.times do |n|
    job.perform_async(n)
    sleep THINK_S
  end
end

# As a page that shows queues reads their lengths.
def sidekiq_queue_sizes
  DIRECT.pipelined { |pipe| ROUNDS.times { |n| pipe.lpush("queue:tenant#{n}", 'x') } }
  sidekiq
  require 'sidekiq/api'
  ROUNDS.times.map { |n| Sidekiq::Queue.new("tenant#{n}").size }
end

# Jobs one by one: perform_bulk sends a thousand at once.
def sidekiq_perform_async_loop
  job = sidekiq
  ROUNDS.times { |n| job.perform_async(n) }
end

def rb_get_loop
  DIRECT.mset(ROUNDS.times.flat_map { |n| ["user:#{n}:name", "name #{n}"] })
  redis = Redis.new(url: URL)
  ROUNDS.times.map { |n| redis.get("user:#{n}:name") }
end

def rb_zincrby_loop
  redis = Redis.new(url: URL)
  ROUNDS.times { |n| redis.zincrby('board', 3, "player #{n}") }
end

def rb_transaction_per_row
  redis = Redis.new(url: URL)
  ROUNDS.times do |n|
    redis.multi do |transaction|
      transaction.hset("row:#{n}", 'value', n)
      transaction.sadd('rows', n)
    end
  end
end

def rb_transaction_per_request
  redis = Redis.new(url: URL)
  60.times do |n|
    redis.multi do |transaction|
      transaction.incr("rate:#{n % 7}")
      transaction.expire("rate:#{n % 7}", 60)
    end
    sleep THINK_S
  end
end

def rb_pipelines_of_hundreds
  redis = Redis.new(url: URL)
  10.times { |chunk| redis.pipelined { |pipe| ROUNDS.times { |n| pipe.set("bulk:#{chunk}:#{n}", n) } } }
end

def rb_linked_list
  DIRECT.mset(ROUNDS.times.flat_map { |n| ["node:#{n * 7919 % 100_003}", (n + 1) * 7919 % 100_003] })
  redis = Redis.new(url: URL)
  node = 0
  ROUNDS.times { node = redis.get("node:#{node}") }
end

def rb_read_multi_per_request
  DIRECT.mset(ROUNDS.times.flat_map { |n| ["views/post/#{n}", "<p>#{n}</p>"] })
  redis = Redis.new(url: URL)
  random = Random.new(4)
  60.times do
    redis.mget(Array.new(10) { "views/post/#{random.rand(ROUNDS)}" })
    sleep THINK_S
  end
end

# Counts a visit of each page of a log.
def rb_visits_of_each_page
  redis = Redis.new(url: URL)
  ROUNDS.times { |n| redis.hincrby("page:#{n}", 'visits', 1 + n % 3) }
end

# Walks from a category to the root: each step needs the reply before.
def rb_category_path
  id = ->(n) { n * 7919 % 100_003 }
  DIRECT.pipelined { |pipe| ROUNDS.times { |n| pipe.hset("category:#{id[n]}", 'parent', id[n + 1]) } }
  redis = Redis.new(url: URL)
  category = 0
  ROUNDS.times { category = redis.hget("category:#{category}", 'parent') }
end

# Fragments of pages, which are rendered if they are not in the cache. Requests take different times.
def rb_fragments_of_requests
  redis = Redis.new(url: URL)
  random = Random.new(6)
  100.times do
    key = "fragment:#{random.rand(70)}"
    redis.set(key, "<p>#{random.rand(1000)}</p>", ex: 60) unless redis.get(key)
    sleep 0.002 + random.rand * 0.01
  end
end

# A captcha is written for each form, and taken when the form comes back.
def rb_captchas
  redis = Redis.new(url: URL)
  random = Random.new(7)
  60.times do
    token = random.bytes(8).unpack1('H*')
    redis.setex("captcha:#{token}", 120, random.rand(9999).to_s)
    sleep 0.004 + random.rand * 0.006
    redis.getdel("captcha:#{token}")
    sleep 0.004 + random.rand * 0.006
  end
end

began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
send(ARGV.fetch(0).tr('-', '_'))
puts format('%.6f s', Process.clock_gettime(Process::CLOCK_MONOTONIC) - began)
