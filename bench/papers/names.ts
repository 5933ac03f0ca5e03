/** The papers that the project grew from, by their names on the command line. */
export type PaperName = 'osu' | 'az-sdp' | 'qpip' | 'sroce' | 'usiw';
export const PAPER_NAMES: readonly PaperName[] = ['osu', 'az-sdp', 'qpip', 'sroce', 'usiw'];

// Authors, title, year.
export const OSU_CITE: string =
  'Balaji, Jin, Vaidyanathan, Panda: Supporting RDMA capable network compatibility and features for ' +
  'regular network adapters, OSU-CISRC-6/05-TR37, 2005';
export const SROCE_CITE: string = 'Pandey, Shashidhara: Software RDMA over Commodity Ethernet, UT Austin';
export const QPIP_CITE: string = 'Buonadonna, Culler: Queue-Pair IP, IRB-TR-02-002, 2002';
export const USIW_CITE: string =
  'MacArthur: USIW, Userspace Software iWARP using DPDK, IBM Research report RZ 3894, 2016';
export const AZ_SDP_CITE: string =
  'Balaji, Bhagvat, Jin, Panda: Asynchronous Zero-copy Communication for Synchronous Sockets in SDP ' +
  'over InfiniBand, IPDPS 2006';
