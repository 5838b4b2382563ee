#!lua
-- Begins a call that must take effect once, unless it has been made, is being made, or its caller has made too many.
--
-- mark: hash of the call: w: what it asks; s: its salt; t: Unix ms of its begin; u: when a begun call counts as interrupted, Unix
-- ms; r: how often it was begun; a: its answer, encrypted
-- count: the calls of this caller in this day
-- content: digest of operation and body; most: of calls in a day; salt, began: of a new call; lease: time of one run, ms; kept: ms
-- Returns {'DONE', answer} | {'OTHER'} | {'BUSY'} | {'FULL', ms until the day ends} | {'BEGIN', salt, began, run}
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local asked, first, start, busy, answer = unpack(redis.call('HMGET', mark, 'w', 's', 't', 'u', 'a'))
if asked then
  if asked ~= content then return {'OTHER'} end
  if answer then return {'DONE', answer} end
  if tonumber(busy) > now then return {'BUSY'} end
else
  if tonumber(redis.call('GET', count) or 0) >= tonumber(most) then return {'FULL', redis.call('PTTL', count)} end
  if redis.call('INCR', count) == 1 then redis.call('PEXPIRE', count, kept) end
  first, start = salt, began
  redis.call('HSET', mark, 'w', content, 's', salt, 't', began)
  redis.call('PEXPIRE', mark, kept)
end
redis.call('HSET', mark, 'u', string.format('%.0f', now + lease))
return {'BEGIN', first, start, redis.call('HINCRBY', mark, 'r', 1)}
