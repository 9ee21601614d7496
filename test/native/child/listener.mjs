/**
 * Listens to changes of nf_tables and reports each to the parent: { generation, events } or "lost". Arguments: the namespace's path, bytes
 * of the receive buffer.
 */
import { NftKernel } from "../../../dist/nft/kernel/nft-kernel.js";

const [netns, receiveBufferBytes] = process.argv.slice(2);
const kernel = await NftKernel.open({ netns, receiveBufferBytes: Number(receiveBufferBytes) });
await kernel.monitor({
  onBatch: ({ generation, events }) => process.send({ generation, events: events.map(({ kind }) => kind) }),
  onLost: () => process.send("lost"),
  onError: (error) => {
    throw error;
  },
});
process.send("listening");
// Runs until the parent ends it.
setInterval(() => undefined, 60_000);
