// SPDX-License-Identifier: BSD-3-Clause
// Sums of a file of 32-bit numbers that Java maps (MappedByteBuffer): of 5000 numbers at random
// places, and of all numbers. The program knows nothing of libummap:
//
//	java Sums.java FILE                      paged by the kernel
//	umrun --limit 64M java Sums.java FILE    paged by libummap, in 64 MiB
//
// Without FILE, the program makes a file of 64 MiB, prints its sums and removes it. A
// MappedByteBuffer has at most 2 GiB: map larger files in parts.

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.IntBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;

public class Sums {
    static Path makeFile(int bytes) throws IOException {
        Path path = Files.createTempFile("ummap-example", ".numbers");
        ByteBuffer numbers = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);

        for (int i = 0; i < bytes / 4; i++)
            numbers.putInt(i * 7);
        Files.write(path, numbers.array());
        return path;
    }

    static long sumAtRandom(IntBuffer numbers) {
        long sum = 0, random = 1;

        for (int i = 0; i < 5000; i++) {
            random = (random * 1103515245 + 12345) & 0x7fffffff;
            sum += numbers.get((int) (random % numbers.capacity()));
        }
        return sum;
    }

    static long sumAll(IntBuffer numbers) {
        int[] part = new int[16384];
        long sum = 0;

        while (numbers.hasRemaining()) {
            int n = Math.min(part.length, numbers.remaining());

            numbers.get(part, 0, n);
            for (int i = 0; i < n; i++)
                sum += part[i];
        }
        return sum;
    }

    public static void main(String[] args) throws IOException {
        Path path = args.length > 0 ? Path.of(args[0]) : makeFile(64 << 20);

        try (FileChannel channel = FileChannel.open(path)) {
            MappedByteBuffer bytes =
                channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
            IntBuffer numbers = bytes.order(ByteOrder.LITTLE_ENDIAN).asIntBuffer();

            System.out.println(sumAtRandom(numbers));
            System.out.println(sumAll(numbers));
        } finally {
            if (args.length == 0)
                Files.delete(path);
        }
    }
}
