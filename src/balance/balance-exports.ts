/** Which endpoint has which place: decided from endpoints and weights alone, without a word of nf_tables. The room's only public face. */
export { arrange, assignIndices, IndexAssigner } from "./indices.js";
export { assignSlots, isBalanced, portIn, prepareSlots, type SlottedPort } from "./slot-assigner.js";
export { endpointsOf, type ListKind, type Slots, type Stood } from "./slots.js";
