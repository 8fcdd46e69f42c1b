import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.h2.H2Backend;
import de.bwaldvogel.mongo.wire.message.MongoMessage;
import java.util.List;
import org.h2.mvstore.MVStore;

/**
 * A server that speaks MongoDB's protocol, for tests: java Launcher.java PORT FILE. It says that it is version 5.0,
 * because the driver refuses less, and writes every change to its file before it answers.
 */
public class Launcher {
	public static void main(String[] args) {
		var backend = new H2Backend(new MVStore.Builder().fileName(args[1]).autoCommitDisabled().open()) {
			@Override
			public de.bwaldvogel.mongo.bson.Document handleMessage(MongoMessage message) {
				try {
					return super.handleMessage(message);
				} finally {
					commit();
				}
			}
		};
		backend.version(new MongoVersion() {
			@Override
			public List<Integer> getVersionArray() {
				return List.of(5, 0, 0);
			}

			@Override
			public int getWireVersion() {
				return 13;
			}
		});
		var server = new MongoServer(backend);
		server.bind("127.0.0.1", Integer.parseInt(args[0]));
		Runtime.getRuntime().addShutdownHook(new Thread(server::shutdownNow));
	}
}
