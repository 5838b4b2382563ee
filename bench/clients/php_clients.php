<?php
// Asks a verifier again and again: php_clients.php <streams|curl> <verifyKey|authz> <base> <key> <count>
[, $client, $endpoint, $base, $key, $count] = $argv;
$verifies = $endpoint === 'verifyKey';
$url = $base . ($verifies ? '/v1/keys.verifyKey' : '/authz/forward-auth');
$header = $verifies ? 'Content-Type: application/json' : "Authorization: Bearer $key";
$body = json_encode(['key' => $key]);

if ($client === 'curl') {
    $handle = curl_init($url);
    curl_setopt_array($handle, [CURLOPT_HTTPHEADER => [$header], CURLOPT_RETURNTRANSFER => true, CURLOPT_NOPROXY => '*']);
    if ($verifies) {
        curl_setopt($handle, CURLOPT_POSTFIELDS, $body);
    }
    $ask = function () use ($handle) {
        curl_exec($handle);
        return curl_getinfo($handle, CURLINFO_RESPONSE_CODE);
    };
} else {
    // A connection for each request, as streams do.
    $http = ['method' => $verifies ? 'POST' : 'GET', 'header' => $header, 'ignore_errors' => true];
    if ($verifies) {
        $http['content'] = $body;
    }
    $ask = function () use ($url, $http) {
        file_get_contents($url, false, stream_context_create(['http' => $http]));
        return (int) explode(' ', $http_response_header[0])[1];
    };
}
for ($i = 0; $i < $count; $i++) {
    $status = $ask();
    if ($status !== 200) {
        fwrite(STDERR, "status $status\n");
        exit(1);
    }
}
