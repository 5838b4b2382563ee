declare module 'cluster-key-slot' {
  /** The Redis Cluster slot (0..16383) of a key, by its hash tag where it has one. */
  export default function slotOf(key: string): number;
}
