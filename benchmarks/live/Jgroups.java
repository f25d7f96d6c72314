import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.ReceiverAdapter;

/** One member of a JGroups group: java -cp jgroups.jar Jgroups.java STACK.xml MEMBER MEMBERS MESSAGES BYTES. */
public class Jgroups {
    static long delivered = 0, last = 0;
    static final Map<Long, Long> latencies = new TreeMap<>();

    public static void main(String[] arguments) throws Exception {
        String stack = arguments[0];
        int me = Integer.parseInt(arguments[1]), members = Integer.parseInt(arguments[2]);
        int messages = Integer.parseInt(arguments[3]), size = Integer.parseInt(arguments[4]);
        long expected = (long) messages * (members - 1);
        Object done = new Object();
        JChannel channel = new JChannel(stack);
        channel.setReceiver(new ReceiverAdapter() {
            @Override
            public void receive(Message message) {
                long now = System.nanoTime();
                ByteBuffer data = ByteBuffer.wrap(message.getRawBuffer(), message.getOffset(), message.getLength());
                long sent = data.getLong(), origin = data.getLong();
                if (origin == me) return;
                synchronized (done) {
                    long took = now - sent;
                    int shift = Math.max(0, 64 - Long.numberOfLeadingZeros(Math.max(took, 1)) - 7);
                    latencies.merge(took >> shift << shift, 1L, Long::sum);
                    if (++delivered == expected) {
                        last = now;
                        done.notifyAll();
                    }
                }
            }
        });
        channel.connect("room");
        while (channel.getView().size() < members) Thread.sleep(50);
        System.out.println("ready");
        long start = Long.parseLong(new BufferedReader(new InputStreamReader(System.in)).readLine().trim());
        // System.nanoTime is the clock that Python calls monotonic, on Linux.
        while (System.nanoTime() < start) Thread.sleep(1);
        for (int number = 0; number < messages; number++) {
            ByteBuffer body = ByteBuffer.allocate(size);
            body.putLong(System.nanoTime()).putLong(me);
            channel.send(new Message(null, null, body.array()));
        }
        synchronized (done) {
            while (delivered < expected) done.wait();
        }
        StringBuilder counts = new StringBuilder();
        for (Map.Entry<Long, Long> each : latencies.entrySet())
            counts.append(counts.length() == 0 ? "" : ",").append('"').append(each.getKey()).append("\":")
                  .append(each.getValue());
        System.out.println("{\"name\":\"" + me + "\",\"delivered\":" + delivered + ",\"last\":" + last
            + ",\"latencies\":{" + counts + "},\"wire_bytes\":0,\"cpu\":0,\"memory\":0}");
        Thread.sleep(1000);
        channel.close();
        System.exit(0);
    }
}
