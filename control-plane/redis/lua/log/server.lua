-- Names this server for as long as it is the primary: after a restart or a failover Redis has another replication id.
local function serverId() return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or '' end
