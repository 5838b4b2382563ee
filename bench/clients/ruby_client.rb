# Asks a verifier again and again over one connection: ruby_client.rb <verifyKey|authz> <base> <key> <count>
require 'json'
require 'net/http'

endpoint, base, key, count = ARGV
uri = URI(base)
Net::HTTP.start(uri.host, uri.port, nil) do |http|
  Integer(count).times do
    answer =
      if endpoint == 'verifyKey'
        http.post('/v1/keys.verifyKey', JSON.generate(key: key), 'Content-Type' => 'application/json')
      else
        http.get('/authz/forward-auth', 'Authorization' => "Bearer #{key}")
      end
    abort("status #{answer.code}") unless answer.code == '200'
  end
end
