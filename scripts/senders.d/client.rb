# Sends one request with Net::HTTP: client.rb METHOD URL KEY [warm]. With warm, a GET goes before, over its connection.
require "net/http"

method, url, key, warm = ARGV
uri = URI(url)
Net::HTTP.start(uri.host, uri.port) do |http|
  http.get("/") unless warm.to_s.empty?
  body = method == "DELETE" ? nil : '{"amount":100}'
  http.send_request(method, "/", body, "Idempotency-Key" => key, "Content-Type" => "application/json")
end
