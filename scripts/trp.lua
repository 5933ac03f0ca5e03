-- For tshark -X lua_script: hands what stands behind the ten octets of TRP to tshark's own dissector of DDP
-- and RDMAP, for every UDP port.
local trp = Proto("trp", "Trivial Reliability Protocol")
local psn = ProtoField.uint32("trp.psn", "PSN")
trp.fields = { psn }
local ddp = Dissector.get("iwarp_ddp_rdmap")
function trp.dissector(buffer, pinfo, tree)
  if buffer:len() <= 10 or buffer(8, 2):uint() ~= 0 then return 0 end
  tree:add(trp, buffer(0, 10)):add(psn, buffer(0, 4))
  return 10 + ddp:call(buffer(10):tvb(), pinfo, tree)
end
DissectorTable.get("udp.port"):add("1-65535", trp)
