# frozen_string_literal: true

# The redis-rb example of docs/pipeline-control.md that stops at a failure, as it stands there.

require_relative 'check'

PAGE = File.expand_path('../../docs/pipeline-control.md', __dir__)
NOT_INTEGER = 'ERR value is not an integer or out of range'

code = File.read(PAGE).scan(/^```ruby\n(.*?)^```$/m).flatten.find { |block| block.include?('ABORT') }
eval(code, TOPLEVEL_BINDING, PAGE) # rubocop:disable Security/Eval

redis = connect
account = run_until_failure(redis, [%w[SET color red], %w[INCR color], %w[SET color blue]])
check('the account', account, { 'executed' => 2, 'failed' => 2, 'error' => NOT_INTEGER, 'skipped' => 1 })
check('the value', redis.get('color'), 'red')
check_error('without the mode', NOT_INTEGER) do
  redis.pipelined do |pipeline|
    pipeline.incr('color')
    pipeline.set('color', 'blue')
  end
end
check('without the mode', redis.get('color'), 'blue')
account = run_until_failure(redis, [%w[GET color]])
check('no failure', account, { 'executed' => 1, 'failed' => 0, 'error' => nil, 'skipped' => 0 })

finish
