# Asks a verifier again and again: lwp_client.pl <keep-alive|close> <verifyKey|authz> <base> <key> <count>
use strict;
use warnings;
use LWP::UserAgent;

my ($manner, $endpoint, $base, $key, $count) = @ARGV;
my $agent = LWP::UserAgent->new(keep_alive => $manner eq 'keep-alive' ? 1 : 0, no_proxy => ['127.0.0.1']);
for (1 .. $count) {
    my $answer = $endpoint eq 'verifyKey'
        ? $agent->post("$base/v1/keys.verifyKey", 'Content-Type' => 'application/json', Content => qq({"key":"$key"}))
        : $agent->get("$base/authz/forward-auth", Authorization => "Bearer $key");
    die 'status ' . $answer->code . "\n" unless $answer->code == 200;
}
