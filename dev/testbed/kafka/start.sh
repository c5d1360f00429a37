#!/bin/sh
# Format the volume once, then run the broker in this process.
#   KAFKA_ADVERTISED  listeners as clients reach them
#   KAFKA_DATA        the volume, /var/lib/kafka
#   KAFKA_HEAP        Java heap, 384m
#   KAFKA_TLS         a folder with ca.crt and server.pem (key and certificate): adds the SASL_SSL and mTLS listeners
#   KAFKA_USER, KAFKA_PASSWORD  who may log in with SASL/PLAIN there; SCRAM users are made by an admin client
#   KAFKA_JVM_OPTS    further options
set -eu
classpath=$(printf '%s:' /opt/kafka/lib/*.jar)
data=${KAFKA_DATA:-/var/lib/kafka}
configuration=/tmp/server.properties
sed -e "s#^log.dirs=.*#log.dirs=$data/log#" \
    -e "s#^advertised.listeners=.*#advertised.listeners=${KAFKA_ADVERTISED:-INTERNAL://localhost:9092,EXTERNAL://localhost:9094}#" \
    /opt/kafka/etc/server.properties >"$configuration"
if [ -n "${KAFKA_TLS:-}" ]; then
  login=org.apache.kafka.common.security
  {
    cat /opt/kafka/etc/secure.properties
    echo "ssl.keystore.location=$KAFKA_TLS/server.pem"
    echo "ssl.truststore.location=$KAFKA_TLS/ca.crt"
    for listener in sasl sasl_external; do
      echo "listener.name.$listener.scram-sha-512.sasl.jaas.config=$login.scram.ScramLoginModule required;"
      echo "listener.name.$listener.plain.sasl.jaas.config=$login.plain.PlainLoginModule required user_$KAFKA_USER=\"$KAFKA_PASSWORD\";"
    done
  } >>"$configuration"
fi
archive=/opt/kafka/classes.jsa
[ -z "${KAFKA_JVM_OPTS:-}" ] && [ -r "$archive" ] && options="-XX:SharedArchiveFile=$archive -Xshare:auto" || options=${KAFKA_JVM_OPTS:-}
if [ ! -f "$data/log/meta.properties" ]; then
  # A fixed cluster id: a broker that lost its volume is a new cluster by its topics' ids, not by a random name.
  java -Xmx96m -XX:TieredStopAtLevel=1 -cp "$classpath" kafka.tools.StorageTool \
    format --cluster-id ZmVuY2Vwb3N0LXRlc3RiZQ --config "$configuration" --ignore-formatted
fi
# shellcheck disable=SC2086  # options are words
exec java "-Xms${KAFKA_HEAP:-384m}" "-Xmx${KAFKA_HEAP:-384m}" -server -XX:+UseSerialGC -XX:MaxDirectMemorySize=128m $options \
  -Djava.awt.headless=true -Dlog4j2.configurationFile=/opt/kafka/etc/log4j2.properties \
  -cp "$classpath" kafka.Kafka "$configuration"
