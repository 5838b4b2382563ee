-- The action `lua.keyfence`: asks the verifier about a request, then adds headers about the key or answers in the
-- API's place. Arguments: the socket of HAProxy's own frontend for the verifier, and the id of the API, optionally
-- followed by the permissions that the key must have: `shop/require/reports.read`.
local TIMEOUT_MS = 2500 -- longer than the backend may take
local ASKED = { "authorization", "x-api-key", "x-request-id", "origin", "referer", "access-control-request-method" }
-- ASKED[#ASKED + 1] = "cookie" -- for the source cookie:apikey
local TOLD = { "x-key-id", "x-key-api-id", "x-key-name", "x-key-external-id", "x-key-meta", "x-key-token" }
local LEFT = { "ratelimit", "ratelimit-policy" } -- for the client
local REFUSED = { "www-authenticate", "content-type", "cache-control", "x-request-id", "access-control-allow-origin",
  "access-control-allow-credentials", "access-control-expose-headers" }

-- Returns every line of a header; HAProxy counts them from 0.
local function lines(headers, name)
  local all = {}
  for i = 0, #(headers[name] or {}) do
    local value = (headers[name] or {})[i]
    if value ~= nil then all[#all + 1] = value end
  end
  return all
end

local function ask(txn, socket, api_id)
  local sent = txn.http:req_get_headers()
  local headers = {
    ["x-original-method"] = { txn.sf:method() },
    ["x-original-uri"] = { txn.sf:pathq() },
    ["x-client-ip"] = { tostring(txn.sf:src() or "") }, -- for CLIENT_IP_HEADER=x-client-ip
  }
  for _, name in ipairs(ASKED) do
    local values = lines(sent, name)
    if #values > 0 then headers[name] = values end
  end
  return core.httpclient():get({
    url = "http://keyfence/authz/api/" .. api_id .. "/auth-request",
    dst = "unix@" .. socket,
    headers = headers,
    timeout = TIMEOUT_MS,
  })
end

core.register_action("keyfence", { "http-req" }, function(txn, socket, api_id)
  local asked, answer = pcall(ask, txn, socket, api_id)
  local status = asked and answer and answer.status or 0
  if status == 200 then
    for _, name in ipairs(TOLD) do
      txn.http:req_set_header(name, lines(answer.headers, name)[1] or "")
    end
    for _, name in ipairs(LEFT) do
      local value = lines(answer.headers, name)[1]
      if value then txn:set_var("txn.keyfence_" .. name:gsub("-", "_"), value) end
    end
    return
  end
  -- There is no verdict, so the API is not called.
  local reply = { status = 503, headers = { ["retry-after"] = { "1" } } }
  if status >= 400 and status < 500 then
    reply = { status = status, headers = {}, body = answer.body }
    -- The verifier answers 403 here because nginx understands no other status; turn it into 429.
    if #lines(answer.headers, "x-key-code") > 0 then
      reply.status = 429
      for _, name in ipairs({ "retry-after", table.unpack(LEFT) }) do reply.headers[name] = lines(answer.headers, name) end
      reply.body = answer.body:gsub('"title":"Forbidden"', '"title":"Too Many Requests"'):gsub('"status":403', '"status":429')
    end
    for _, name in ipairs(REFUSED) do
      reply.headers[name] = lines(answer.headers, name)
    end
  end
  txn:done(txn:reply(reply))
end, 2)
