// Asks a verifier again and again: java JavaClients.java <client> <verifyKey|authz> <base> <key> <count>
import java.io.IOException;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

final class JavaClients {
    private JavaClients() {}

    public static void main(String[] arguments) throws Exception {
        String client = arguments[0];
        boolean verifies = arguments[1].equals("verifyKey");
        URI uri = URI.create(arguments[2] + (verifies ? "/v1/keys.verifyKey" : "/authz/forward-auth"));
        String key = arguments[3];
        int count = Integer.parseInt(arguments[4]);
        switch (client) {
            case "HttpClient" -> askHttpClient(HttpClient.newHttpClient(), uri, verifies, key, count);
            case "HttpClient-1.1" -> {
                var only = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
                askHttpClient(only, uri, verifies, key, count);
            }
            case "HttpURLConnection" -> askHttpURLConnection(uri, verifies, key, count);
            default -> throw new IllegalArgumentException(client);
        }
    }

    private static void askHttpClient(HttpClient client, URI uri, boolean verifies, String key, int count)
            throws Exception {
        var request = HttpRequest.newBuilder(uri);
        if (verifies) {
            request.header("Content-Type", "application/json").POST(HttpRequest.BodyPublishers.ofString(bodyOf(key)));
        } else {
            request.header("Authorization", "Bearer " + key);
        }
        var built = request.build();
        for (int i = 0; i < count; i++) check(client.send(built, BodyHandlers.ofString()).statusCode());
    }

    private static void askHttpURLConnection(URI uri, boolean verifies, String key, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            var connection = (HttpURLConnection) uri.toURL().openConnection();
            if (verifies) {
                connection.setRequestMethod("POST");
                connection.setRequestProperty("Content-Type", "application/json");
                connection.setDoOutput(true);
                try (var out = connection.getOutputStream()) {
                    out.write(bodyOf(key).getBytes());
                }
            } else {
                connection.setRequestProperty("Authorization", "Bearer " + key);
            }
            check(connection.getResponseCode());
            try (var in = connection.getInputStream()) {
                in.readAllBytes();
            }
        }
    }

    private static String bodyOf(String key) {
        return "{\"key\":\"" + key + "\"}";
    }

    private static void check(int status) throws IOException {
        if (status != 200) throw new IOException("status " + status);
    }
}
