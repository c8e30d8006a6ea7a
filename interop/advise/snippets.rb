# frozen_string_literal: true

# Runs the advisor's suggestions in Ruby: see snippets_test.py.

require 'json'
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

def run(snippet, input)
  CLIENT.flushall
  if snippet['commands'][0] == 'XREADGROUP'
    CLIENT.xgroup(:create, 'stream', 'group', '0', mkstream: true)
    CLIENT.xadd('stream', { 'f' => 'v' })
  end
  scope = binding
  input['values'].merge(input['lists']).each do |name, value|
    scope.local_variable_set(name, value) if name =~ /\A[a-z]/
  end
  items = snippet['items']
  scope.local_variable_set(:redis, CLIENT)
  scope.local_variable_set(:options, { ex: 60 })
  scope.local_variable_set(:items, items)
  scope.local_variable_set(:changes, snippet['changes'])
  scope.local_variable_set(:all, items)
  scope.local_variable_set(:fields, { 'f' => '1' }) if items.nil?
  # Constants of a snippet are local here, because each snippet sets its own.
  code = snippet['code'].gsub(/\b(SCRIPT|SHA|URL)\b/) { |name| "the_#{name.downcase}" }
  scope.local_variable_set(:the_script, input['values']['SCRIPT'])
  scope.local_variable_set(:the_url, input['url'])
  scope.eval(code)
  # The call of a framework in a comment.
  scope.local_variable_set(:names, %w[a b])
  code.scan(/^# .*: (Rails\..*)/) { |(call)| scope.eval(call) }
  nil
rescue Redis::CommandError => e
  e.message
rescue SyntaxError, StandardError => e
  "#{e.class}: #{e.message}"
end

puts JSON.generate(input['snippets'].map { |snippet| run(snippet, input) })
