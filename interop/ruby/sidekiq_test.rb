# frozen_string_literal: true

# Sidekiq, unmodified: jobs that are due are moved by its script, and the rest of what it does goes through.

require 'json'
require 'sidekiq'
require 'sidekiq/api'
require 'sidekiq/scheduled'
require_relative 'check'

Sidekiq.logger.level = Logger::FATAL
Sidekiq.configure_client { |config| config.redis = { url: ENV.fetch('PENSTOCK_URL') } }

class Mailer
  include Sidekiq::Worker
  sidekiq_options queue: 'mails', retry: 3

  def perform(_number); end
end

# What Sidekiq's own poller does every few seconds.
def enqueue_what_is_due
  Sidekiq::Scheduled::Enq.new.enqueue_jobs
end

# How often its script has run.
def scripts_run
  Sidekiq.redis { |redis| calls(redis, 'evalsha') + calls(redis, 'eval') }
end

3.times { |i| Mailer.perform_async(i) }
check 'jobs in the queue', Sidekiq::Queue.new('mails').size, 3

past = Time.now.to_f - 10
Sidekiq::Client.push_bulk('class' => Mailer, 'args' => (10...110).map { |i| [i] }, 'at' => past)
Mailer.perform_in(3600, 999)
check 'jobs that are scheduled', Sidekiq::ScheduledSet.new.size, 101
enqueue_what_is_due
check 'jobs that are not due yet', Sidekiq::ScheduledSet.new.map { |job| job.args }, [[999]]
queue = Sidekiq::Queue.new('mails')
check 'jobs in the queue afterwards', queue.size, 103
check 'each of them once', queue.map { |job| job.args.first }.sort, [0, 1, 2, *10...110]
check 'by a script', scripts_run > 100, true

# The poller of another process has lost the script: EVALSHA fails, and Sidekiq loads it again.
Sidekiq.redis { |redis| redis.script(:flush) }
Sidekiq::Client.push('class' => Mailer, 'args' => [7], 'at' => past)
enqueue_what_is_due
check 'after SCRIPT FLUSH', queue.size, 104

# Jobs that have failed wait in a set of their own, which the same script looks at.
failed = JSON.generate('class' => 'Mailer', 'args' => [8], 'queue' => 'mails', 'jid' => 'x')
Sidekiq.redis { |redis| redis.zadd('retry', past.to_s, failed) }
enqueue_what_is_due
check 'a job that is tried again', [Sidekiq::RetrySet.new.size, queue.size], [0, 105]
check 'a job that is found', queue.find_job('x').args, [8]
queue.find_job('x').delete
check 'a job that is deleted', queue.size, 104
queue.clear
check 'what is left', Sidekiq::Stats.new.then { |stats| [stats.enqueued, stats.scheduled_size, stats.retry_size] }, [0, 1, 0]
finish
