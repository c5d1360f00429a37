#!/bin/sh
# Run one Cassandra node in this process.
#   CASSANDRA_DATA           the volume, /var/lib/cassandra
#   CASSANDRA_HEAP           Java heap, 768m
#   CASSANDRA_BROADCAST_RPC  the address that clients get, this host's first by default
#   CASSANDRA_JVM_OPTS       further options
set -eu
conf=/tmp/cassandra-conf
mkdir -p "$conf"
address=${CASSANDRA_BROADCAST_RPC:-$(hostname -i | cut -d' ' -f1)}
sed -e "s#^broadcast_rpc_address:.*#broadcast_rpc_address: $address#" \
    -e "s#/var/lib/cassandra/#${CASSANDRA_DATA:-/var/lib/cassandra}/#" /opt/cassandra/etc/cassandra.yaml >"$conf/cassandra.yaml"
archive=/opt/cassandra/classes.jsa
[ -z "${CASSANDRA_JVM_OPTS:-}" ] && [ -r "$archive" ] && options="-XX:SharedArchiveFile=$archive -Xshare:auto" || options=${CASSANDRA_JVM_OPTS:-}
heap=${CASSANDRA_HEAP:-768m}
# shellcheck disable=SC2086  # options are words
exec java "-Xms$heap" "-Xmx$heap" -XX:MaxDirectMemorySize=384m @/opt/cassandra/etc/jvm17.options $options \
  "-javaagent:$(echo /opt/cassandra/lib/jamm-*.jar)" \
  -Dcassandra.config="file://$conf/cassandra.yaml" -Dcassandra.storagedir="${CASSANDRA_DATA:-/var/lib/cassandra}" \
  -Dlogback.configurationFile="file:///opt/cassandra/etc/logback.xml" \
  -Dcassandra.superuser_setup_delay_ms=0 -Dcassandra.skip_wait_for_gossip_to_settle=0 \
  -Dcassandra.ring_delay_ms=0 -Dcassandra.initial_token=0 -Dcassandra.auth_bcrypt_gensalt_log2_rounds=4 \
  -Djava.io.tmpdir=/tmp -Djna.tmpdir=/tmp -Duser.home=/tmp -Dcassandra-foreground=yes \
  -cp "$(printf '%s:' /opt/cassandra/lib/*.jar)" org.apache.cassandra.service.CassandraDaemon
