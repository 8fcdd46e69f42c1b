import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.stripe.StripeClient;
import com.stripe.exception.StripeException;
import com.stripe.net.RequestOptions;
import com.stripe.param.ChargeCreateParams;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Sends one POST per line of standard input with stripe-java, and writes what it made of the answer. */
public class Client {
  static String send(String line) {
    JsonObject call = new Gson().fromJson(line, JsonObject.class);
    JsonObject told = new JsonObject();
    told.add("row", call.get("row"));
    try {
      StripeClient client =
          StripeClient.builder()
              .setApiKey("sk_test_1")
              .setApiBase(call.get("base").getAsString())
              .setMaxNetworkRetries(2)
              .build();
      ChargeCreateParams params =
          ChargeCreateParams.builder().setAmount(100L).setCurrency("eur").setSource("tok_visa").build();
      RequestOptions options =
          RequestOptions.builder().setIdempotencyKey(call.get("key").getAsString()).build();
      told.addProperty("id", client.v1().charges().create(params, options).getId());
      told.addProperty("success", true);
    } catch (StripeException e) {
      told.addProperty("class", e.getClass().getSimpleName());
      told.addProperty("status", e.getStatusCode() == null ? 0 : e.getStatusCode());
      told.addProperty("text", e.getMessage());
    } catch (RuntimeException e) {
      told.addProperty("class", e.getClass().getSimpleName());
      told.addProperty("text", String.valueOf(e.getMessage()));
    }
    return told.toString();
  }

  public static void main(String[] args) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(64);
    List<Future<String>> calls = new ArrayList<>();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String call = line;
      calls.add(pool.submit(() -> send(call)));
    }
    for (Future<String> call : calls) {
      System.out.println(call.get());
    }
    pool.shutdown();
  }
}
