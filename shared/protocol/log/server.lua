-- Returns an id of this server, for as long as it is the primary: Redis takes a new replication id after a restart or a failover.
local function serverId() return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or '' end
