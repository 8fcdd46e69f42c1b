import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Sends one request: Client NAME METHOD URL KEY [warm]. With warm, a GET goes before, over the same connection. */
public class Client {
  interface Sender {
    void send(String method, String key) throws Exception;
  }

  static final byte[] BODY = "{\"amount\":100}".getBytes();

  static Sender sender(String name, String url) throws Exception {
    switch (name) {
      case "HttpURLConnection":
        return (method, key) -> {
          HttpURLConnection c = (HttpURLConnection) URI.create(url).toURL().openConnection();
          c.setRequestMethod(method);
          c.setRequestProperty("Idempotency-Key", key);
          if (method.startsWith("P")) {
            c.setDoOutput(true);
            c.getOutputStream().write(BODY);
          }
          c.getInputStream().readAllBytes();
        };
      case "java.net.http":
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        return (method, key) -> {
          HttpRequest.BodyPublisher body =
              method.startsWith("P") ? HttpRequest.BodyPublishers.ofByteArray(BODY) : HttpRequest.BodyPublishers.noBody();
          HttpRequest request = HttpRequest.newBuilder(URI.create(url)).header("Idempotency-Key", key).method(method, body).build();
          client.send(request, HttpResponse.BodyHandlers.ofString());
        };
      case "OkHttp":
        okhttp3.OkHttpClient ok = new okhttp3.OkHttpClient();
        return (method, key) -> {
          okhttp3.RequestBody body = method.startsWith("P") ? okhttp3.RequestBody.create(BODY) : null;
          ok.newCall(new okhttp3.Request.Builder().url(url).header("Idempotency-Key", key).method(method, body).build()).execute().body().string();
        };
      case "Apache HttpClient":
        var apache = org.apache.hc.client5.http.impl.classic.HttpClients.createDefault();
        return (method, key) -> {
          var request = org.apache.hc.core5.http.io.support.ClassicRequestBuilder.create(method).setUri(url).setHeader("Idempotency-Key", key);
          if (method.startsWith("P")) {
            request.setEntity(BODY, org.apache.hc.core5.http.ContentType.APPLICATION_JSON);
          }
          apache.execute(request.build(), answer -> org.apache.hc.core5.http.io.entity.EntityUtils.toString(answer.getEntity()));
        };
      case "reactor-netty":
        var netty = reactor.netty.http.client.HttpClient.create();
        return (method, key) -> {
          var body = reactor.netty.ByteBufFlux.fromString(reactor.core.publisher.Mono.just(method.startsWith("P") ? new String(BODY) : ""));
          netty
              .headers(h -> h.set("Idempotency-Key", key).set("Content-Length", method.startsWith("P") ? BODY.length : 0))
              .request(io.netty.handler.codec.http.HttpMethod.valueOf(method)).uri(url).send(body).responseContent().aggregate().asString().block();
        };
      case "Jetty":
        var jetty = new org.eclipse.jetty.client.HttpClient();
        jetty.start();
        return (method, key) -> {
          var request = jetty.newRequest(url).method(method).headers(h -> h.put("Idempotency-Key", key));
          if (method.startsWith("P")) {
            request.body(new org.eclipse.jetty.client.BytesRequestContent(BODY));
          }
          request.send();
        };
      default:
        throw new IllegalArgumentException(name);
    }
  }

  public static void main(String[] args) throws Exception {
    try {
      Sender sender = sender(args[0], args[2]);
      if (!args[4].isEmpty()) {
        sender.send("GET", "");
      }
      sender.send(args[1], args[3]);
    } finally {
      Runtime.getRuntime().halt(0);
    }
  }
}
