# frozen_string_literal: true

# Runs the advisor's suggestions in Ruby: see snippets_test.py.

require 'json'
require 'timeout'
require 'active_support'
require 'active_support/notifications'
require 'active_support/cache'
require 'active_support/cache/redis_cache_store'
require 'redis'
require 'sidekiq'

input = JSON.parse($stdin.read)
CLIENT = Redis.new(url: input['url'])

def use(_element); end

Sidekiq.configure_client { |config| config.redis = { url: input['url'] } }

# The class of the jobs.
class Job
  include Sidekiq::Job
end

# The part of Rails that the code calls.
module Rails
  class << self
    attr_accessor :cache
  end
end

Rails.cache = ActiveSupport::Cache::RedisCacheStore.new(url: input['url'])

# Runs code that subscribes, for a moment.
def subscribe(url, scope, code)
  client = Redis.new(url: url)
  scope.local_variable_set(:redis, client)
  Timeout.timeout(0.2) { scope.eval(code) }
rescue Timeout::Error
  client.disconnect!
end

# The error of a snippet, or nil.
def error_of(snippet, input)
  scope = binding
  snippet['values'].merge(snippet['lists']).each do |name, value|
    scope.local_variable_set(name, value) if name =~ /\A[a-z]/
  end
  items = snippet['items']
  scope.local_variable_set(:redis, CLIENT)
  scope.local_variable_set(:options, { ex: 60 })
  scope.local_variable_set(:items, items)
  scope.local_variable_set(:changes, snippet['changes'])
  scope.local_variable_set(:all, items)
  scope.local_variable_set(:fields, snippet['map']) if items.nil?
  # Constants of a snippet are local here, because each snippet sets its own.
  code = snippet['code'].gsub(/\b(SCRIPT|SHA|URL)\b/) { |name| "the_#{name.downcase}" }
  scope.local_variable_set(:the_script, snippet['values']['SCRIPT'])
  scope.local_variable_set(:the_url, snippet['url'])
  # A subscriber waits for ever: the subscription itself is the test.
  if code.include?('subscribe')
    subscribe(snippet['url'], scope, code)
  else
    scope.eval(code)
  end
  # The call of a framework in a comment.
  scope.local_variable_set(:names, %w[a b])
  code.scan(/^# .*: (Rails\..*)/) { |(call)| scope.eval(call) }
  nil
rescue Redis::CommandError => e
  e.message
rescue SyntaxError, StandardError => e
  "#{e.class}: #{e.message}"
end

# The error of a snippet, and the data that it leaves.
def run(snippet, input)
  snippet['seed'].each { |words| CLIENT.call(words) }
  [error_of(snippet, input), CLIENT.call(['EVAL', input['snapshot'], '0'])]
end

puts JSON.generate(input['snippets'].map { |snippet| run(snippet, input) })
