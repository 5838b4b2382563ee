declare module 'cluster-key-slot' {
  /** Returns the Redis Cluster slot (0..16383) of a key, from its hash tag if it has one. */
  export default function slotOf(key: string): number;
}
