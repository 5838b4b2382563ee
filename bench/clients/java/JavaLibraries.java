// Asks a verifier again and again: java JavaLibraries.java <client> <verifyKey|authz> <base> <key> <count>
import java.io.IOException;
import okhttp3.MediaType;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.RequestBody;
import org.apache.hc.client5.http.classic.methods.HttpGet;
import org.apache.hc.client5.http.classic.methods.HttpPost;
import org.apache.hc.client5.http.classic.methods.HttpUriRequestBase;
import org.apache.hc.client5.http.impl.classic.HttpClients;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.io.entity.EntityUtils;
import org.apache.hc.core5.http.io.entity.StringEntity;

final class JavaLibraries {
    private JavaLibraries() {}

    public static void main(String[] arguments) throws Exception {
        boolean verifies = arguments[1].equals("verifyKey");
        String url = arguments[2] + (verifies ? "/v1/keys.verifyKey" : "/authz/forward-auth");
        String body = verifies ? "{\"key\":\"" + arguments[3] + "\"}" : null;
        String bearer = "Bearer " + arguments[3];
        int count = Integer.parseInt(arguments[4]);
        switch (arguments[0]) {
            case "OkHttp" -> askOkHttp(url, body, bearer, count);
            case "Apache" -> askApache(url, body, bearer, count);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void askOkHttp(String url, String body, String bearer, int count) throws IOException {
        var client = new OkHttpClient();
        var request = new Request.Builder().url(url);
        if (body == null) request.header("Authorization", bearer);
        else request.post(RequestBody.create(body, MediaType.get("application/json")));
        for (int i = 0; i < count; i++) {
            try (var response = client.newCall(request.build()).execute()) {
                check(response.code());
                response.body().string();
            }
        }
        client.connectionPool().evictAll();
        client.dispatcher().executorService().shutdown();
    }

    private static void askApache(String url, String body, String bearer, int count) throws IOException {
        try (var client = HttpClients.createDefault()) {
            for (int i = 0; i < count; i++) {
                HttpUriRequestBase request = body == null ? new HttpGet(url) : new HttpPost(url);
                if (body == null) request.setHeader("Authorization", bearer);
                else request.setEntity(new StringEntity(body, ContentType.APPLICATION_JSON));
                client.execute(request, (response) -> {
                    check(response.getCode());
                    return EntityUtils.toByteArray(response.getEntity());
                });
            }
        }
    }

    private static void check(int status) throws IOException {
        if (status != 200) throw new IOException("status " + status);
    }
}
