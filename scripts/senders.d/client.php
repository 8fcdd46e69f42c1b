<?php // Sends one request with curl: client.php METHOD URL KEY [warm]. With warm, a GET goes before, over the same connection.
[, $method, $url, $key, $warm] = $argv;
$curl = curl_init($url);
curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
if ($warm) {
    curl_exec($curl);
}
curl_setopt($curl, CURLOPT_CUSTOMREQUEST, $method);
curl_setopt($curl, CURLOPT_HTTPHEADER, ["Idempotency-Key: $key"]);
if ($method !== 'DELETE') {
    curl_setopt($curl, CURLOPT_POSTFIELDS, '{"amount":100}');
}
curl_exec($curl);
