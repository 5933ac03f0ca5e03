/**
 * Numbers that outgrow 31 bits. V8 keeps a field as a small integer until the first number that is none. Then
 * all that has been compiled for such objects is thrown away: a connection at full speed stumbles in its
 * first second, when its bytes pass 2^31 (`bulk` of bench/micro/datapath.ts with long windows).
 */

/**
 * Zero for a field that will count octets: minus zero is no small integer, so the field holds doubles from
 * the start. Before such a field is shown, 0 is added, which makes zero of minus zero and changes nothing
 * else.
 */
export const DOUBLE_ZERO = -0;
