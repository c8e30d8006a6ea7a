# frozen_string_literal: true

# What the Ruby scripts share: connecting, checking, and the count of checks at the end.

require 'redis'

# Methods that later versions of the gem drop are part of what this version's users call.
Redis.silence_deprecations = true

CHECKS = Hash.new(0)

def connect(**options)
  Redis.new(url: ENV.fetch('PENSTOCK_URL'), timeout: 30, **options)
end

# One check: ends the script where `actual` is not `expected`.
def check(what, actual, expected)
  CHECKS[:made] += 1
  return if actual == expected

  abort "#{what}:\n  expected #{excerpt(expected)}\n  got      #{excerpt(actual)}"
end

def excerpt(value)
  text = value.inspect
  text.length > 400 ? "#{text[0, 400]}… (#{text.length} characters)" : text
end

# Checks that the block ends with an error reply of this text.
def check_error(what, text)
  yield
rescue Redis::CommandError => e
  check(what, e.message, text)
else
  abort "#{what}: no error, expected #{text}"
end

# How often the server has run `command` since CONFIG RESETSTAT.
def calls(redis, command)
  redis.info(:commandstats).dig(command, 'calls').to_i
end

def finish
  puts "#{CHECKS[:made]} checks"
end
