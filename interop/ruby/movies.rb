# frozen_string_literal: true

# The import of movies into an autocompletion index: every prefix of every word of a title leads to the title, in a sorted
# set. Three ways to do it: a score looked up for every prefix, one score for a movie, and that with the writes in a
# pipeline.

MOVIES = 10_000
TITLES = (1..MOVIES).map { |number| "The Number#{number}" }

# A single letter is no prefix worth an entry.
def prefixes(title)
  title.downcase.split.flat_map { |word| (2..word.length).map { |length| word[0, length] } }
end

PREFIXES = TITLES.to_h { |title| [title, prefixes(title)] }

# The prefixes of the first titles.
def titles(movies)
  PREFIXES.first(movies)
end

def entries(movies)
  titles(movies).sum { |_, prefixes| prefixes.length }
end

def index(prefix)
  "movies:index:#{prefix}"
end

def data(title)
  "movies:data:#{title.delete(' ')}"
end

def score_for_every_prefix(redis, movies)
  titles(movies).each do |title, prefixes|
    prefixes.each do |prefix|
      score = redis.zscore(index(prefix), title).to_i
      redis.zadd(index(prefix), score, title)
    end
    redis.hset(data(title), title, "about #{title}")
  end
end

def score_for_every_movie(redis, movies)
  titles(movies).each do |title, prefixes|
    score = redis.zscore(index(prefixes.first), title).to_i
    prefixes.each { |prefix| redis.zadd(index(prefix), score, title) }
    redis.hset(data(title), title, "about #{title}")
  end
end

def writes_in_a_pipeline(redis, movies)
  titles(movies).each do |title, prefixes|
    score = redis.zscore(index(prefixes.first), title).to_i
    redis.pipelined do |pipeline|
      prefixes.each { |prefix| pipeline.zadd(index(prefix), score, title) }
      pipeline.hset(data(title), title, "about #{title}")
    end
  end
end
